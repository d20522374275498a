#!/bin/bash
# One pod of a group that serves a target together. `launch.sh worker` waits for MPI; `launch.sh leader
# ARGUMENTS` tells MPI where the workers are and starts the repository's own launch.sh, whose ranks
# then run on all of them. ARGUMENTS are those of `specdec serve`; those after -- go to the tritonserver
# of rank 0, the only one that answers.
set -euo pipefail

gpus=${GPUS_PER_POD:?}
port=2222
export PATH=/opt/specdec/env/bin:$PATH

# Secrets belong to root; ssh wants keys that only their user can read.
mkdir -p -m 700 /tmp/ssh
install -m 600 /secrets/ssh/id /tmp/ssh/id
install -m 600 /secrets/ssh/id.pub /tmp/ssh/authorized_keys

if [ "$1" = worker ]; then
    # A session has none of the container's environment by itself, and would not find MPI.
    exec /usr/sbin/sshd -D -e -p "$port" -h /tmp/ssh/id -o PidFile=none -o UsePAM=no \
        -o PasswordAuthentication=no -o AuthorizedKeysFile=/tmp/ssh/authorized_keys -o StrictModes=no \
        -o "SetEnv=PATH=$PATH LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}"
fi
shift

# The leader is NAME-GROUP.SERVICE.NAMESPACE, its i-th worker NAME-GROUP-i.SERVICE.NAMESPACE.
group=${LWS_LEADER_ADDRESS%%.*}
domain=${LWS_LEADER_ADDRESS#*.}
# Rank 0 directs the engines and has no GPU of its own.
echo "$(hostname) slots=$((gpus + 1))" > /tmp/hosts
for ((i = 1; i < ${LWS_GROUP_SIZE:?}; i++)); do
    worker="$group-$i.$domain"
    until (: < "/dev/tcp/$worker/$port") 2> /dev/null; do
        echo "waiting for $worker"
        sleep 2
    done
    echo "$worker slots=$gpus" >> /tmp/hosts
done

# The key that lets MPI in is the workers' host key too: no other host can answer for them.
echo "* $(cut -d' ' -f1,2 /secrets/ssh/id.pub)" > /tmp/ssh/known_hosts
known="-o UserKnownHostsFile=/tmp/ssh/known_hosts -o StrictHostKeyChecking=yes"
export OMPI_MCA_orte_default_hostfile=/tmp/hosts
export OMPI_MCA_plm_rsh_args="-p $port -i /tmp/ssh/id $known"
export OMPI_MCA_mca_base_env_list="TRTLLM_ORCHESTRATOR;TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"
exec specdec serve --launch=/models/repository/launch.sh --address=0.0.0.0 "$@"
