"""Writes special.h: values of the special functions at some points, by mpmath with 40 digits."""
from mpmath import *

mp.dps = 40
points = {
    "erf": (erf, [-3, -0.9, -0.2, 1e-8, 0.5, 0.84, 0.86, 2, 5]),
    "erfc": (erfc, [-3, -0.5, 0.2, 0.7, 1.33, 3, 6.5, 9]),
    "erfinv": (erfinv, [-0.999, -0.7, -0.2, 1e-10, 0.3, 0.5, 0.51, 0.9, 0.999999]),
    "erfcinv": (lambda x: erfinv(1 - mpf(x)), [1e-12, 1e-5, 0.1, 0.4, 0.5, 0.9, 1.2, 1.6, 1.9]),
    "erfcx": (lambda x: exp(mpf(x) ** 2) * erfc(x), [-3, -0.5, 0.1, 1, 5, 24, 26, 100]),
    "gamma": (gamma, [-2.5, -0.5, 0.1, 0.5, 1.5, 3.7, 10, 30]),
    "lgamma": (lambda x: log(abs(gamma(x))), [-2.5, -0.5, 0.1, 0.5, 1.7, 3.7, 10, 1000]),
    "digamma": (digamma, [-2.7, -0.4, 0.1, 0.5, 1, 2.5, 9.9, 100]),
    "trigamma": (lambda x: psi(1, x), [-2.7, -0.4, 0.1, 0.5, 1, 2.5, 9.9, 100]),
    "polygamma2": (lambda x: psi(2, x), [-20.25, -2.7, -0.4, 0.1, 0.5, 2.5, 100]),
    "polygamma3": (lambda x: psi(3, x), [-20.25, -2.7, -0.4, 0.1, 0.5, 1, 2.5, 9.9, 100]),
    "besselj0": (lambda x: besselj(0, x), [-3, 0, 0.5, 2, 7.5, 40]),
    "besselj1": (lambda x: besselj(1, x), [-3, 0, 0.5, 2, 7.5, 40]),
    "besselj3": (lambda x: besselj(3, x), [-3, 0, 0.5, 2, 7.5, 40]),
    "bessely0": (lambda x: bessely(0, x), [0.1, 0.5, 2, 7.5, 40]),
    "bessely1": (lambda x: bessely(1, x), [0.1, 0.5, 2, 7.5, 40]),
    "bessely3": (lambda x: bessely(3, x), [0.1, 0.5, 2, 7.5, 40]),
    "sinpi": (sinpi, [-1.25, 0.1, 0.5, 1, 2.75, 1e9 + 0.25]),
    "cospi": (cospi, [-1.25, 0.1, 0.5, 1, 2.75, 1e9 + 0.25]),
    "mod2pi": (lambda x: mpf(x) - 2 * pi * floor(mpf(x) / (2 * pi)), [-1, 0.5, 4, 7, 100, 1e15, -1e6]),
    "mish": (lambda x: x * tanh(log1p(exp(x))), [-30, -2, -0.1, 0.5, 3, 30]),
    "gelu_tanh": (lambda x: x * (1 + tanh(sqrt(2 / pi) * (x + mpf("0.044715") * mpf(x) ** 3))) / 2,
                  [-6, -2, -0.1, 0.5, 3, 30]),
    "softplus": (lambda x: log1p(exp(mpf(x))), [-50, -2, -0.1, 0.5, 3, 50]),
    "log_cosh": (lambda x: log(cosh(mpf(x))), [-50, -2, -0.5, 0.5, 3, 50]),
}

with open(__file__.replace(".py", ".h"), "w") as out:
    out.write("/* Made by special.py. */\n")
    out.write("static const struct golden {\n    const char *name;\n    double x, y;\n} goldens[] = {\n")
    for name, (f, xs) in points.items():
        for x in xs:
            out.write("    {\"%s\", %r, %s},\n" % (name, float(x), nstr(f(mpf(x)), 20, min_fixed=0, max_fixed=0)))
    out.write("};\n")
