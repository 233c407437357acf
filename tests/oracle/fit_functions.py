#!/usr/bin/python3
"""Fits the polynomials of exec/host/ops_simd.h.

    /usr/bin/python3 tests/oracle/fit_functions.py        (Debian: python3-numpy)

exp:  P of degree 4 with exp(r) = 1 + r + r^2 P(r) on |r| <= ln2/2, least largest relative error.
erfc: Q of degree 8 with erfc(z) = exp(-z^2) t Q(t), t = 1 / (1 + 0.3 z), on 0 <= z <= 10, likewise.
The least largest error is approached by reweighted least squares on Chebyshev points.
"""
import math

import numpy as np


def chebyshev(lo, hi, count):
    return (lo + hi) / 2 + (hi - lo) / 2 * np.cos(np.pi * (np.arange(count) + 0.5) / count)


def fit(x, y, degree, weight, rounds=60):
    powers = np.stack([x**i for i in range(degree + 1)], 1)
    emphasis = np.ones_like(x)
    for _ in range(rounds):
        w = weight * np.sqrt(emphasis)
        c, *_ = np.linalg.lstsq(powers * w[:, None], y * w, rcond=None)
        error = np.abs((powers @ c - y) * weight)
        emphasis *= error / error.max() + 1e-3
        emphasis /= emphasis.mean()
    return c, error.max()


def show(name, c, error):
    print(f"{name}: largest relative error {error:.2g}; coefficients of degree 0, 1, ...")
    for v in c:
        print(f"    {float(np.float32(v)):.17g}f")


r = chebyshev(-math.log(2) / 2, math.log(2) / 2, 4001)
rest = np.array([(math.expm1(v) - v) / (v * v) if abs(v) > 1e-3 else 0.5 + v / 6 + v * v / 24 for v in r])
show("exp", *fit(r, rest, 4, r * r * np.exp(-r)))


def scaled_erfc(z):
    """exp(z^2) erfc(z); beyond 8 by its asymptotic series."""
    if z < 8:
        return math.exp(z * z) * math.erfc(z)
    total = term = 1.0
    for n in range(1, 12):
        term *= -(2 * n - 1) / (2 * z * z)
        total += term
    return total / (z * math.sqrt(math.pi))


t = chebyshev(1 / (1 + 0.3 * 10), 1, 1501)
y = np.array([scaled_erfc((1 / v - 1) / 0.3) for v in t])
show("erfc", *fit(t, y / t, 8, t / y))
