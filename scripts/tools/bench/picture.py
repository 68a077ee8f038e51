"""Draws the cost curves from JSON on standard input; runs in an environment of its own with matplotlib."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

curves = json.load(sys.stdin)
figure, axes = pyplot.subplots(1, len(curves), figsize=(5 * len(curves), 4.5), sharey=True, layout="constrained")
for axis, (place, moves) in zip(axes, curves.items(), strict=True):
    for move, costs in moves.items():
        axis.plot([int(size) for size in costs], list(costs.values()), marker="o", label=move)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(f"jobs {place}")
    axis.grid(visible=True, alpha=0.3)
axes[0].set_ylabel("Redis, µs per job")
axes[-1].legend()
figure.savefig(sys.argv[1], dpi=110)
