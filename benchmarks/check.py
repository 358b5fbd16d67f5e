"""The GPU engine against float64, and against NumPy's states, on this machine; fails if it is off.

python benchmarks/check.py
"""

import sys

from common import M, N, Record, Stream, arguments, engines, key, np, trained_model, training_rows

from sdcpd.device import to_host
from sdcpd.log_z import annealed_log_z
from sdcpd.rbm import Parameters


def main():
    options = arguments(__doc__)
    engine = engines.select(options.backend)
    images, source = training_rows()
    theta = trained_model(engine, images, 100)
    host = Parameters(*(to_host(array) for array in theta[:3]))
    v = images[None, :200].astype(np.float32)
    state = engine.states(engine.xp.asarray(images[None, :200]))
    wide = host.map(lambda array: array.astype(np.float64))
    columns = ["what", "largest difference", "bound", "ok"]
    title = f"Against float64 and NumPy, {M} × {N}, batch 200, after 100 updates"
    record, fine = Record("check", title, columns, engine, options, rows=source), []

    def add(what, value, bound):
        fine.append(bool(value <= bound))
        record.add(what, float(value), bound, "yes" if fine[-1] else "NO")

    exact_p = engines.PLAIN.hidden_probability(wide, v.astype(np.float64))
    p = to_host(engine.hidden_probability(theta, state))
    if p.ndim == 4:  # in two halves
        p = (p[:, :, 0].astype(np.float64) + p[:, :, 1].astype(np.float64) / 2048)[..., :N]
    add("p(h | v)", np.abs(p - exact_p).max(), 1e-5)
    got = engine.statistics(theta, state, engine.hidden_probability(theta, state))
    expected = engines.PLAIN.statistics(wide, v.astype(np.float64), exact_p)
    for name, ours, exact in zip("Wbc", got, expected, strict=True):
        add(f"∇g of {name}", np.abs(to_host(ours) - exact).max(), 1e-5)
    # A state differs where a random number falls between two roundings of a probability.
    chain = engine.chain(theta, state, Stream([key("check")], engine.xp))
    plain = engines.PLAIN.chain(host, v, Stream([key("check")], np))
    chain.step()
    plain.step()
    differ = (to_host(chain.images()) != plain.images()).mean()
    add("share of other states after 1 step than NumPy's", differ, 1e-4)
    keys, mean = [key("check", i) for i in range(4)], images.mean(0)
    four = type(theta)(*(engine.xp.repeat(array, 4, axis=0) for array in theta))
    ours = annealed_log_z(four, mean, keys, 100, 300, engine=engine)
    other = annealed_log_z(host.map(lambda array: array.repeat(4, axis=0)), mean, keys, 100, 300)
    error = np.hypot(ours.standard_error, other.standard_error).max()
    add("AIS, nats from NumPy's", abs(ours.value.mean() - other.value.mean()), 3 * error)
    record.close()
    sys.exit(not all(fine))


if __name__ == "__main__":
    main()
