from __future__ import annotations

import subprocess
import sys

import pytest

from gangctl.telemetry.tracing.exporter import collector
from tests.telemetry.traced_restart import tracer_with

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
    "an endless timeout": (ENDPOINT | {"OTEL_EXPORTER_OTLP_TIMEOUT": "1e300"}, "OTLP_TIMEOUT is '1e300'"),
    "a session that isn't there": (
        ENDPOINT | {"OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": "x"},
        "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER is set",
    ),
    "a meter that isn't there": (ENDPOINT | {"OTEL_PYTHON_METER_PROVIDER": "bogus"}, "StopIteration"),
    "a timeout in words": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
        "OTLP_TIMEOUT is 'soon', not a whole number",
    ),
    "no time at all": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "0"},
        "TRACES_TIMEOUT is '0', not a whole number",
    ),
    "a time without an end": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_TIMEOUT": "inf"},
        "OTLP_TIMEOUT is 'inf', not a whole number",
    ),
    "an exporter that isn't there": (ENDPOINT | {"OTEL_TRACES_EXPORTER": "zipkin"}, "only otlp and none are supported"),
    "no endpoint": ({"OTEL_TRACES_EXPORTER": "otlp"}, "but OTEL_EXPORTER_OTLP_ENDPOINT is not set"),
    "a queue in words": (ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "many"}, "not a whole number above 0"),
    "a batch above the queue": (
        ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "11"},
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE is '11', not a whole number above 0 and at most 10",
    ),
    "a certificate that isn't there": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/such.pem"},
        "can't be used (/no/such.pem): [Errno 2] No such file or directory",
    ),
    "a certificate that is none": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_CERTIFICATE": __file__},
        "the files for TLS of OTEL_EXPORTER_OTLP_* can't be used",
    ),
    "a client without its certificate": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_CLIENT_KEY": "/no/such.key"},
        "can't be used (/no/such.key)",
    ),
    "a client's certificate that isn't there": (
        ENDPOINT | {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/no/such.pem"},
        "can't be used (/no/such.pem)",
    ),
    "a delay below 0": (ENDPOINT | {"OTEL_BSP_SCHEDULE_DELAY": "-1"}, "schedule_delay_millis must be positive"),
    "a limit in words": (ENDPOINT | {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "few"}, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
}

REPLACED = {
    "a sampler that doesn't exist": ({"OTEL_TRACES_SAMPLER": "some"}, "Couldn't recognize sampler some."),
    "a ratio in words": (
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "half"},
        "Could not convert TRACES_SAMPLER_ARG to float. Using default rate 1.0.",
    ),
    "a ratio above 1": (
        {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "50"},
        "Could not convert TRACES_SAMPLER_ARG to float. Using default rate 1.0.",
    ),
    "a compression that isn't there": ({"OTEL_EXPORTER_OTLP_COMPRESSION": "lz4"}, "Unsupported compression type: lz4"),
    "a resource that is none": ({"OTEL_RESOURCE_ATTRIBUTES": "cluster"}, "attribute pair cluster: not enough values"),
    "an endless delay": ({"OTEL_BSP_SCHEDULE_DELAY": "1e300"}, "OTEL_BSP_SCHEDULE_DELAY"),
}
"""What the SDK replaces by a default."""


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_setting_is_logged_in_one_line_and_turns_traces_off(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    environment, said = BAD[case]
    tracer = tracer_with(environment)
    # caplog also has the lines of the SDK's own logger.
    (line,) = [one.getMessage() for one in caplog.records if one.name.startswith("gangctl")]
    assert said in line
    assert line.startswith("traces are off: ")
    assert line.endswith("Nothing else is affected. Correct the setting and restart the controller")
    assert SECRET not in line
    assert line.isprintable()
    assert tracer.counts().exported == 0
    await tracer.close()


@pytest.mark.parametrize("case", REPLACED)
async def test_the_log_has_the_warning_of_the_sdk_if_it_replaces_a_setting_by_its_default(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    environment, said = REPLACED[case]
    await tracer_with(ENDPOINT | environment).close()
    (line,) = [one.getMessage() for one in caplog.records if one.name.startswith("gangctl")]
    assert line.startswith("OpenTelemetry: ")
    assert said in line


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
    tracer_with(environment)
    assert not caplog.messages


def test_traces_that_are_off_import_no_opentelemetry() -> None:
    code = (
        "import sys, gangctl.controller.local;"
        "from gangctl.telemetry.tracing.tracer import tracer_from_environment;"
        "tracer_from_environment();"
        "sys.exit(any(name.split('.')[0] in {'opentelemetry', 'requests'} for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_standard_variables_have_their_standard_meaning() -> None:
    found = collector(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector/base/",
            "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x=, tenant = a ",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_BSP_MAX_QUEUE_SIZE": "64",
        }
    )
    assert found is not None
    assert found.endpoint == "https://collector/base/v1/traces"
    assert dict(found.headers) == {"authorization": "Bearer x=", "tenant": "a"}
    assert (found.timeout, found.queue, found.batch) == (2.5, 64, 64)


def test_a_variable_for_traces_has_priority_over_the_general_one() -> None:
    found = collector(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": GOOD,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:4318/as/it/is",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=2",
        }
    )
    assert found is not None
    assert found.endpoint == "http://traces:4318/as/it/is"
    assert found.headers == {"b": "2"}
