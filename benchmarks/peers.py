"""The same update by what somebody could use instead, on this machine, in the same run.

    uv run --with torch --with scikit-learn --with rbms python benchmarks/peers.py     5 minutes

What is not installed is left out, and said. Everything trains one model of 784 × 500 in float32
with K = 24 Gibbs steps and mini-batches of 200 of the same rows, but for scikit-learn, which has no
CD-K: there, 24 calls of its `gibbs` are timed and nothing else.
"""

import importlib.metadata

from common import (
    BATCH, K, Record, arguments, blas_threads, engines, key, np, replicate, seconds, take_turns,
    trained_model, training_rows, update_task,
)  # fmt: skip

from sdcpd.device import to_host
from sdcpd.log_z import annealed_log_z

TEMPERATURES = 10_000


def straightforward(xp, W, b, c, v, steps=K):
    """CD-24 as one would first write it, with NumPy or CuPy."""
    rng = xp.random.default_rng(1)

    def sigmoid(x):
        return 1 / (1 + xp.exp(-x))

    def sample(p):
        return (rng.random(p.shape, dtype=xp.float32) < p).astype(xp.float32)

    def update():
        p_data = p = sigmoid(v @ W.T + c)
        for _ in range(steps):
            v_model = sample(sigmoid(sample(p) @ W + b))
            p = sigmoid(v_model @ W.T + c)
        new_W = W + 1e-7 * (p_data.T @ v - p.T @ v_model) / len(v)
        return new_W, b + 1e-7 * (v - v_model).mean(0), c + 1e-7 * (p_data - p).mean(0)

    return update


def torch_loop(torch, device, W, b, c, v, steps=K):
    """The same with PyTorch."""
    W, b, c, v = (torch.as_tensor(array, device=device) for array in (W, b, c, v))

    def update():
        with torch.no_grad():
            p_data = p = torch.sigmoid(v @ W.T + c)
            for _ in range(steps):
                v_model = torch.bernoulli(torch.sigmoid(torch.bernoulli(p) @ W + b))
                p = torch.sigmoid(v_model @ W.T + c)
            new_W = W + 1e-7 * (p_data.T @ v - p.T @ v_model) / len(v)
            return new_W, b + 1e-7 * (v - v_model).mean(0), c + 1e-7 * (p_data - p).mean(0)

    return update


def rbms_tasks(torch, device, W, b, c, v, temperatures):
    """CD-24 by the functions that `rbms` trains with, centering switched off, and its AIS."""
    from rbms.bernoulli_bernoulli.classes import BBRBM
    from rbms.partition_function.ais import compute_partition_function_ais

    params = BBRBM(*(torch.as_tensor(a, device=device) for a in (np.ascontiguousarray(W.T), b, c)))
    data = torch.as_tensor(v, device=device)
    optimizer = torch.optim.SGD(params.parameters(), lr=1e-7, maximize=True)

    def update():
        start = params.init_chains(len(data), start_v=data)
        chains = params.sample_state(n_steps=K, chains=params.init_chains(len(data), start_v=data))
        params.compute_gradient(start, chains, centered=False)
        optimizer.step()

    return update, lambda: compute_partition_function_ais(100, temperatures, params)


def scikit_learn_gibbs(W, b, c, v):
    """24 calls of BernoulliRBM.gibbs: the sampling alone, in float64 as it computes."""
    from sklearn.neural_network import BernoulliRBM

    model = BernoulliRBM(n_components=len(c), random_state=0)
    model.components_, model.intercept_visible_, model.intercept_hidden_ = W, b, c
    model.random_state_ = np.random.RandomState(0)

    def update():
        state = v
        for _ in range(K):
            state = model.gibbs(state)

    return update


def main():
    options = arguments(__doc__)
    engine = engines.select(options.backend)
    xp, on_gpu = engine.xp, engine.xp is not np
    images, source = training_rows()
    # The CPU engine's time depends on the states: it is measured on both models.
    theta_early = trained_model(engine, images, 0)
    theta = trained_model(engine, images, 60 if options.quick else 300)
    W, b, c = (to_host(array)[0] for array in theta[:3])
    v = images[:BATCH].astype(np.float32)
    ais_steps = 20 if options.quick else 100
    ours, ours_early = "this project, 1 model", "this project, 1 model, at the start"
    tasks = {ours: update_task(engine, "cd", theta, images)}
    if on_gpu:
        many = update_task(engine, "cd", replicate(engine, theta, 50), images)
        arrays = [xp.asarray(array) for array in (W, b, c, v)]
        tasks["straightforward CuPy"] = straightforward(xp, *arrays)
    else:
        tasks[ours_early] = update_task(engine, "cd", theta_early, images)
        tasks["straightforward NumPy"] = straightforward(np, W, b, c, v)
    ais = {
        ours: lambda: annealed_log_z(theta, images.mean(0), [key(0)], 100, ais_steps, engine=engine)
    }
    versions, missing = {}, []
    try:
        import torch

        device = "cuda" if on_gpu else "cpu"
        if not on_gpu:
            torch.set_num_threads(blas_threads())
        tasks["straightforward PyTorch"] = torch_loop(torch, device, W, b, c, v)
        versions["torch"] = torch.__version__
        tasks["rbms"], ais["rbms"] = rbms_tasks(torch, device, W, b, c, v, ais_steps)
        versions["rbms"] = importlib.metadata.version("rbms")
    except ImportError as error:
        missing.append(str(error))
    if not on_gpu:
        try:
            tasks["scikit-learn, 24 × gibbs"] = scikit_learn_gibbs(W, b, c, v)
            versions["scikit-learn"] = importlib.metadata.version("scikit-learn")
        except ImportError as error:
            missing.append(str(error))
    columns = ["what", "who", "ms", "times ours", "version"]
    title = "One CD-24 update, and AIS (100 particles × 10,000 temperatures), 784 × 500, batch 200"
    record = Record(
        "peers", title, columns, engine, options, rows=source, missing=missing, **versions
    )
    for reason in missing:
        print("left out:", reason)
    times = take_turns(tasks, xp, repetitions=3 if options.quick else 7, budget=90)
    if on_gpu:
        name = "this project, 50 models, each"
        times[name] = [t / 50 for t in take_turns({name: many}, xp, repetitions=5)[name]]
    _add(record, "update", times, ours, versions, 1)
    for task in ais.values():
        task()
    ais_times = {name: [seconds(task, xp) for _ in range(3)] for name, task in ais.items()}
    _add(record, "AIS", ais_times, ours, versions, TEMPERATURES / ais_steps)
    record.close(draw)


def _add(record, what, times, ours, versions, scale):
    for name, values in times.items():
        ratio = float(np.median(np.divide(values, times[ours][: len(values)])))
        version = next(
            (v for n, v in versions.items() if n in name.lower().replace("pytorch", "torch")), ""
        )
        value = 1000 * scale * float(np.median(values))
        record.add(what, name, value, ratio, version, times=values)


def draw(axes, rows):
    names = [f"{what}: {name}" for what, name, *_ in rows]
    bars = axes.barh(names, [row[3] for row in rows], color="0.6")
    axes.bar_label(bars, [f" {row[3]:.3g} × ({row[2]:,.0f} ms)" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="times as long as this project with one model")
    axes.margins(x=0.2)


if __name__ == "__main__":
    main()
