"""How fast does a task go through its chain beside others that it never slows down?

Kernels yield to collectives, a slow link limits those that also cross a fast one: the rates of what is at work are
often the same whichever step of a chain runs beside it. Then the network serves them as if the chain were not there,
and what they leave to each of its steps is known until one of them comes or goes. Rates are those of all together:
every flow keeps the resource that limits it, and two chains beside the same company have none in common.
"""

from __future__ import annotations

from math import inf

from simulator.engine.chains import Chain, Demand, Pace
from simulator.engine.network import Network


class Company:
    """The paces of chains, by what is at work beside them."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._paces: dict[tuple[object, ...], Pace] = {}

    def forget(self) -> None:
        """Capacities have changed."""
        self._paces.clear()

    def pace(self, chain: Chain) -> Pace:
        """That of the chain beside all that is at work now; it stops where it would change a rate of that, or stall."""
        beside = self._network.reached(chain.resources)
        if not beside:
            return chain.solo
        key = (chain, *[x for demand in beside for x in (demand, len(demand.flows))])
        if key not in self._paces:
            self._paces[key] = self._find(chain)
        return self._paces[key]

    def _find(self, chain: Chain) -> Pace:
        rates = {one: self._rate(one) for one in dict.fromkeys(chain.demands) if one is not None}
        return chain.pace({one: rate for one, rate in rates.items() if rate is not None})

    def _rate(self, demand: Demand) -> float | None:
        """What is left to one flow of `demand`; None if it would take something from others."""
        network = self._network
        others = network.reached(demand.resources)
        counts = {other: len(other.flows) for other in others}
        counts[demand] = counts.get(demand, 0) + 1
        together = sorted(counts, key=lambda one: one.index)
        rates = dict(zip(together, network.rates([(one, counts[one]) for one in together]), strict=True))
        if any(next(iter(other.flows)).rate != rates[other] for other in others):
            return None
        return rates[demand] if 0.0 < rates[demand] < inf else None
