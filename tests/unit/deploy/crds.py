"""Schemas of the custom Kubernetes kinds that we use, with the fields that we use.

They follow the API references of these kinds. A field that is not listed is an error.
"""

from __future__ import annotations

from typing import Any

import jsonschema


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_TEXT, _NUMBER, _MAP = {"type": "string"}, {"type": "integer"}, {"type": "object"}
_DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h|d|w|y))+$"}
_TEMPLATE = _closed(["spec"], metadata=_MAP, spec=_MAP)
_LABELS = {"type": "object", "additionalProperties": _TEXT}

# monitoring.coreos.com/v1
_POD_MONITOR = _closed(
    ["selector", "podMetricsEndpoints"],
    jobLabel=_TEXT,
    selector=_closed([], matchLabels=_LABELS),
    podMetricsEndpoints={
        "type": "array",
        "items": _closed(["port"], port=_TEXT, interval=_DURATION, path=_TEXT),
    },
)
_RULE = {
    **_closed(
        ["expr"],
        record=_TEXT,
        alert=_TEXT,
        expr=_TEXT,
        labels=_LABELS,
        annotations=_LABELS,
        **{"for": _DURATION},
    ),
    "oneOf": [{"required": ["record"]}, {"required": ["alert"]}],
}
_PROMETHEUS_RULE = _closed(
    ["groups"],
    groups={
        "type": "array",
        "items": _closed(
            ["name", "rules"],
            name=_TEXT,
            interval=_DURATION,
            rules={"type": "array", "items": _RULE},
        ),
    },
)

# leaderworkerset.x-k8s.io/v1
_LEADER_WORKER_SET = _closed(
    ["leaderWorkerTemplate"],
    replicas=_NUMBER,
    startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
    rolloutStrategy=_closed(
        ["type"],
        type={"enum": ["RollingUpdate"]},
        rollingUpdateConfiguration=_closed([], maxUnavailable=_NUMBER, maxSurge=_NUMBER),
    ),
    leaderWorkerTemplate=_closed(
        ["workerTemplate"],
        size=_NUMBER,
        restartPolicy={"enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]},
        leaderTemplate=_TEMPLATE,
        workerTemplate=_TEMPLATE,
    ),
)

# inference.networking.k8s.io/v1
_INFERENCE_POOL = _closed(
    ["selector", "targetPorts"],
    selector=_closed(["matchLabels"], matchLabels=_LABELS),
    targetPorts={"type": "array", "items": _closed(["number"], number=_NUMBER)},
    endpointPickerRef=_closed(
        ["name"],
        name=_TEXT,
        port=_closed(["number"], number=_NUMBER),
        failureMode={"enum": ["FailOpen", "FailClose"]},
    ),
)

# gateway.networking.k8s.io/v1
_HTTP_ROUTE = _closed(
    ["parentRefs", "rules"],
    parentRefs={"type": "array", "items": _closed(["name"], name=_TEXT)},
    rules={
        "type": "array",
        "items": _closed(
            ["backendRefs"],
            matches={
                "type": "array",
                "items": _closed(
                    ["path"],
                    path=_closed(["type", "value"], type={"enum": ["PathPrefix"]}, value=_TEXT),
                ),
            },
            backendRefs={
                "type": "array",
                "items": _closed(["name"], group=_TEXT, kind=_TEXT, name=_TEXT),
            },
            timeouts=_closed([], request=_DURATION),
        ),
    },
)

_SPECIFICATIONS = {
    ("inference.networking.k8s.io/v1", "InferencePool"): _INFERENCE_POOL,
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): _HTTP_ROUTE,
    ("monitoring.coreos.com/v1", "PodMonitor"): _POD_MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): _PROMETHEUS_RULE,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): _LEADER_WORKER_SET,
}


def check_custom(document: dict[str, Any]) -> bool:
    """Return whether the object is of a custom kind; raise ValidationError if it is invalid.

    An object without `spec` is not validated.
    """
    schema = _SPECIFICATIONS.get((document["apiVersion"], document["kind"]))
    if schema is None or document.get("spec") is None:
        return schema is not None
    whole = _closed(["metadata", "spec"], apiVersion=_TEXT, kind=_TEXT, metadata=_MAP, spec=schema)
    jsonschema.validate(document, whole)
    return True
