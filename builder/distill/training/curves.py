"""Plots of a training run: its loss and its acceptance."""

from __future__ import annotations

from pathlib import Path


def draw(curve: list[dict[str, float]], folder: Path) -> None:
    """Write loss.png and acceptance.png; each point of `curve` has step, loss, agreement and tau.

    Without matplotlib it prints a message and writes nothing, because the draft is trained anyway.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - slow to load, and only wanted at a run's end
    except ModuleNotFoundError:
        print("train: no plots, because matplotlib is not installed (extra loadtest)", flush=True)
        return

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    steps = [point["step"] for point in curve]
    for name, series in (
        ("loss", (("loss", "loss"),)),
        ("acceptance", (("tau", "tokens per round (τ)"), ("agreement", "top-1 agreement"))),
    ):
        figure, axes = plt.subplots(len(series), 1, squeeze=False, figsize=(6, 3 * len(series)))
        for axis, (key, label) in zip(axes[:, 0], series, strict=True):
            axis.plot(steps, [point[key] for point in curve], marker=".")
            axis.set(xlabel="step", ylabel=label)
            axis.grid(alpha=0.3)
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=120)
        plt.close(figure)
