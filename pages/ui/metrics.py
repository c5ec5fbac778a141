"""What Prometheus reads: the numbers of a server's health in its text format, each by its name, unit and labels.

It knows `core.service.Health` and how the format names things; it does not know who asks, nor pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from core.service import LANES, Health
from core.store import STATUSES

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def exposition(health: Health, streams: int) -> bytes:
    """Return all numbers as text of CONTENT_TYPE; `streams`: how many event streams are open."""
    registry = CollectorRegistry()
    registry.register(_Reading([*_of_runs(health), *_of_workers(health), *_of_server(health, streams)]))
    return generate_latest(registry)


def _of_runs(health: Health) -> Iterator[Metric]:
    runs: dict[tuple[str, ...], float] = {
        (lane, status): health.runs.get((lane, status), 0) for lane in LANES for status in STATUSES}
    yield _gauge("driftscope_runs", "Runs in the store.", runs, "lane", "status")
    yield _gauge("driftscope_queue_length", "Runs that wait for a worker.",
                 {(lane,): runs[lane, "queued"] for lane in LANES}, "lane")
    yield _gauge("driftscope_queue_oldest_seconds", "How long the oldest waiting run has waited; 0 where none waits.",
                 {(lane,): health.oldest.get(lane, 0.0) for lane in LANES}, "lane")
    yield _gauge("driftscope_store_bytes", "What all runs in the store hold.", health.used)
    yield _gauge("driftscope_store_limit_bytes", "Size of the store beyond which old runs go.", health.limit)


def _of_workers(health: Health) -> Iterator[Metric]:
    yield _gauge("driftscope_workers", "Workers that are alive.", {(lane,): len(health.crew(lane)) for lane in LANES},
                 "lane")
    yield _gauge("driftscope_worker_resident_bytes", "Memory that the workers of a lane hold.",
                 {(lane,): sum(one.memory_bytes for one in health.crew(lane)) for lane in LANES}, "lane")
    yield CounterMetricFamily("driftscope_worker_deaths", "Workers that ended since the server started.", health.deaths)
    yield _gauge("driftscope_engine_ready", "Whether this server has runs computed.", health.state.status == "ready")


def _of_server(health: Health, streams: int) -> Iterator[Metric]:
    yield _gauge("driftscope_event_streams", "Open streams of live charts.", streams)
    yield _gauge("driftscope_server_resident_bytes", "Memory that the server's process holds.", health.resident)
    yield CounterMetricFamily("driftscope_server_cpu_seconds", "Processor time of the server's process.", health.cpu)
    yield _gauge("driftscope_server_start_time_seconds", "When the server started, since 1970.", health.started)
    yield InfoMetricFamily("driftscope_build", "Versions of what is installed.", dict(health.versions))


def _gauge(name: str, about: str, value: float | Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Return a number, or one for all values of some labels."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, one in (value if isinstance(value, Mapping) else {(): value}).items():
        family.add_metric(values, one)
    return family


class _Reading(Collector):
    """One reading, as the library wants it."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return what was read."""
        return self._families
