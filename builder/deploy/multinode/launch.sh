#!/bin/bash
# One pod of a group that serves a target together: `launch.sh worker` waits for MPI, `launch.sh leader
# ARGUMENTS` starts a rank on every GPU. Rank 0 is the server, ARGUMENTS those of `specdec serve`;
# the others hold their parts of the target and answer nobody.
set -euo pipefail

gpus_per_pod=${GPUS_PER_POD:?}
num_pods=${LWS_GROUP_SIZE:?}
port=2222

# Secrets are root's; ssh wants keys that are one's own and nobody else's.
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
hosts="$(hostname):$gpus_per_pod"
for ((i = 1; i < num_pods; i++)); do
    worker="$group-$i.$domain"
    until (: < "/dev/tcp/$worker/$port") 2> /dev/null; do
        echo "waiting for $worker"
        sleep 2
    done
    hosts+=",$worker:$gpus_per_pod"
done

# The key that lets MPI in is the workers' host key too: nobody else can answer for them.
echo "* $(cut -d' ' -f1,2 /secrets/ssh/id.pub)" > /tmp/ssh/known_hosts
ssh="-p $port -i /tmp/ssh/id -o UserKnownHostsFile=/tmp/ssh/known_hosts -o StrictHostKeyChecking=yes"
exec mpirun --mca plm_rsh_args "$ssh" --host "$hosts" \
    -n 1 specdec serve "$@" : \
    -n $((num_pods * gpus_per_pod - 1)) tritonserver --model-repository=/models/repository \
    --model-control-mode=explicit --load-model=target --disable-auto-complete-config \
    --allow-http=false --allow-grpc=false --allow-metrics=false --log-info=false
