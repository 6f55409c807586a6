"""What the variables of the dashboard choose, as selectors of PromQL.

One place, so that no panel forgets a variable.
"""

NAMESPACE, DIMENSION, POD = "namespace", "dimension", "pod"
VARIABLES = (NAMESPACE, DIMENSION, POD)
RATE = "[$__rate_interval]"
# Without Kubernetes no series has namespace and pod: `.*` fits what is absent.
PROCESS = 'namespace=~"$namespace", pod=~"$pod"'
DIMENSIONS = f'{PROCESS}, dimension=~"$dimension"'


def of_dimensions(metric: str, more: str = "") -> str:
    """The metric's series of the chosen dimensions; `more` are further matchers."""
    return f"{metric}{{{DIMENSIONS}{more and f', {more}'}}}"


def of_processes(metric: str) -> str:
    """The metric's series of the chosen pods, where no dimension is told."""
    return f"{metric}{{{PROCESS}}}"


def rate(metric: str, more: str = "") -> str:
    """How much a total grows in a second."""
    return f"rate({of_dimensions(metric, more)}{RATE})"


def total(expression: str, *labels: str) -> str:
    """The sum over all sidecars, by these labels."""
    return f"sum by ({', '.join(labels)}) ({expression})" if labels else f"sum({expression})"


def largest(expression: str, *labels: str) -> str:
    """The worst of all sidecars, by these labels."""
    return f"max by ({', '.join(labels)}) ({expression})" if labels else f"max({expression})"


def quantile(share: float, histogram: str) -> str:
    """How long so many of a histogram's events took at the most, for each dimension."""
    return f"histogram_quantile({share:g}, {total(rate(f'{histogram}_bucket'), DIMENSION, 'le')})"


def mean(histogram: str) -> str:
    """The mean of a histogram's events, for each dimension."""
    return (
        f"{total(rate(f'{histogram}_sum'), DIMENSION)}"
        f" / {total(rate(f'{histogram}_count'), DIMENSION)}"
    )
