from __future__ import annotations

import subprocess
import sys

import pytest

from gangctl.telemetry.tracing.settings import read
from gangctl.telemetry.tracing.tracer import tracer_from_environment

GOOD = "http://collector:4318"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": GOOD}
SECRET = "hunter2"
BAD = {
    "an endpoint that is no URL": ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTLP_ENDPOINT is 'collector"),
    "an endpoint without a host": ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://:4318"}, "OTLP_ENDPOINT is 'http://:4318'"),
    "an endpoint for gRPC": (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "grpc://collector:4317"},
        "not an http:// or https:// URL",
    ),
    "a port that is none": (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:99999"},
        "not an http:// or https:// URL",
    ),
    "a line break in it": (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a\n2026 error: fake"},
        "not an http:// or https:// URL",
    ),
    "a password in a wrong one": (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": f"ftp://me:{SECRET}@collector/?key={SECRET}"},
        "OTLP_ENDPOINT is 'ftp://***@collector/'",
    ),
    "the one for traces": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "nothing"},
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is 'nothing'",
    ),
    "gRPC": (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "only http/protobuf"),
    "gRPC for traces": (ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "only http/protobuf"),
    "a header without a value": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": f"a=b,{SECRET}"},
        "entry 2 of OTEL_EXPORTER_OTLP_HEADERS is not NAME=VALUE",
    ),
    "a header with a line break": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": f"a={SECRET}%0d%0ax: y"},
        "entry 1 of OTEL_EXPORTER_OTLP_HEADERS is not a valid header",
    ),
    "a header whose name is none": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": f"a b={SECRET}"},
        "entry 1 of OTEL_EXPORTER_OTLP_HEADERS is not a valid header",
    ),
    "a header with a blank at its beginning": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": f"a=%20{SECRET}'"},
        "entry 1 of OTEL_EXPORTER_OTLP_HEADERS is not a valid header",
    ),
    "a header with a blank at its end": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": f"b=c,a={SECRET}%20"},
        "entry 2 of OTEL_EXPORTER_OTLP_HEADERS is not a valid header",
    ),
    "a header with a control character": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": f"a={SECRET}%09b"},
        "entry 1 of OTEL_EXPORTER_OTLP_HEADERS is not a valid header",
    ),
    "a header of the exporter's own": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": "Content-Type=text/plain"},
        "entry 1 of OTEL_EXPORTER_OTLP_HEADERS is not a valid header",
    ),
    "a length that is wrong": (ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": "content-length=1"}, "is not a valid header"),
    "another host": (ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": "host=other"}, "is not a valid header"),
    "a queue beyond all memory": (
        ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "9" * 31},
        "not a whole number above 0 and at most 1000000",
    ),
    "a queue of more digits than Python reads": (
        ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "9" * 10_000},
        "not a whole number above 0 and at most 1000000",
    ),
    "an endless delay": (ENDPOINT | {"OTEL_BSP_SCHEDULE_DELAY": "1e300"}, "OTEL_BSP_SCHEDULE_DELAY is '1e300'"),
    "an endless timeout": (ENDPOINT | {"OTEL_EXPORTER_OTLP_TIMEOUT": "1e300"}, "OTLP_TIMEOUT is '1e300'"),
    "a session that isn't there": (
        ENDPOINT | {"OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": "x"},
        "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER is set",
    ),
    "a meter that isn't there": (ENDPOINT | {"OTEL_PYTHON_METER_PROVIDER": "bogus"}, "StopIteration"),
    "a timeout in words": (ENDPOINT | {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "OTLP_TIMEOUT is 'soon', not a number"),
    "no time at all": (ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "0"}, "TRACES_TIMEOUT is '0', not a number"),
    "a time without an end": (ENDPOINT | {"OTEL_EXPORTER_OTLP_TIMEOUT": "inf"}, "OTLP_TIMEOUT is 'inf', not a number"),
    "a compression that isn't there": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_COMPRESSION": "lz4"},
        "is not one of none, gzip",
    ),
    "a certificate that isn't there": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/such.pem"},
        "OTEL_EXPORTER_OTLP_CERTIFICATE is '/no/such.pem', which cannot be read",
    ),
    "a certificate that is none": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_CERTIFICATE": __file__},
        "which cannot be read",
    ),
    "a client without its certificate": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_CLIENT_KEY": "/no/such.key"},
        "OTEL_EXPORTER_OTLP_CLIENT_KEY is set, but OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not",
    ),
    "a client's certificate that isn't there": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/no/such.pem"},
        "which cannot be used with its key",
    ),
    "a sampler that doesn't exist": (ENDPOINT | {"OTEL_TRACES_SAMPLER": "some"}, "OTEL_TRACES_SAMPLER is 'some'"),
    "a ratio in words": (
        ENDPOINT | {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "half"},
        "OTEL_TRACES_SAMPLER_ARG is 'half', but traceidratio needs a number from 0 to 1",
    ),
    "a ratio above 1": (
        ENDPOINT | {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "50"},
        "OTEL_TRACES_SAMPLER_ARG is '50'",
    ),
    "an exporter that isn't there": (ENDPOINT | {"OTEL_TRACES_EXPORTER": "zipkin"}, "only otlp and none are supported"),
    "no endpoint": ({"OTEL_TRACES_EXPORTER": "otlp"}, "but OTEL_EXPORTER_OTLP_ENDPOINT is not set"),
    "a resource that is none": (ENDPOINT | {"OTEL_RESOURCE_ATTRIBUTES": "cluster"}, "entry 1 of OTEL_RESOURCE_ATTR"),
    "a queue in words": (ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "many"}, "not a whole number above 0"),
    "a batch above the queue": (
        ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "11"},
        "more than OTEL_BSP_MAX_QUEUE_SIZE",
    ),
    "a delay below 0": (ENDPOINT | {"OTEL_BSP_SCHEDULE_DELAY": "-1"}, "OTEL_BSP_SCHEDULE_DELAY is '-1'"),
    "a limit in words": (ENDPOINT | {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "few"}, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_setting_is_logged_in_one_line_and_turns_traces_off(
    case: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, said = BAD[case]
    for name, value in environment.items():  # the SDK reads some by itself
        monkeypatch.setenv(name, value)
    tracer = tracer_from_environment(environment)
    # caplog also has the lines of the SDK's own logger.
    (line,) = [one.getMessage() for one in caplog.records if one.name.startswith("gangctl")]
    assert said in line
    assert line.startswith("traces are off: ")
    assert line.endswith("Nothing else is affected. Correct the setting and restart the controller")
    assert SECRET not in line
    assert line.isprintable()
    assert tracer.counts().exported == 0
    await tracer.close()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "  "},
        ENDPOINT | {"OTEL_SDK_DISABLED": "True"},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_HEADERS": "broken", "OTEL_SERVICE_NAME": "x"},
    ],
)
def test_traces_that_are_not_configured_or_disabled_are_off_without_a_log_line(
    environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    if environment.get("OTEL_EXPORTER_OTLP_HEADERS"):
        assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in environment
    tracer_from_environment(environment)
    assert not caplog.messages


def test_traces_that_are_off_import_no_opentelemetry() -> None:
    code = (
        "import sys, gangctl.controller.local;"
        "from gangctl.telemetry.tracing.tracer import tracer_from_environment;"
        "tracer_from_environment({});"
        "sys.exit(any(name.split('.')[0] in {'opentelemetry', 'requests'} for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_standard_variables_have_their_standard_meaning() -> None:
    found = read(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector/base/",
            "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x=, tenant = a ",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.25",
            "OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=a%2Cb,service.name=other",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
        }
    )
    assert found is not None
    assert found.endpoint == "https://collector/base/v1/traces"
    assert dict(found.headers) == {"authorization": "Bearer x=", "tenant": "a"}
    assert (found.timeout, found.compression) == (2.5, "gzip")
    assert (found.sampler, found.ratio) == ("parentbased_traceidratio", 0.25)
    assert dict(found.resource) == {"k8s.cluster.name": "a,b", "service.name": "other"}
    assert (found.schedule_delay, found.queue, found.batch) == (0.1, 64, 64)


def test_a_variable_for_traces_has_priority_over_the_general_one() -> None:
    found = read(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": GOOD,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:4318/as/it/is",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=2",
            "OTEL_SERVICE_NAME": "mine",
        }
    )
    assert found is not None
    assert found.endpoint == "http://traces:4318/as/it/is"
    assert found.headers == (("b", "2"),)
    assert dict(found.resource) == {"service.name": "mine"}
