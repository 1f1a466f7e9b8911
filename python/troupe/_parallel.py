"""Replicas, pipelines and groups."""
from . import _core


class DataParallel:
    """Replicas of a module, or actors of one type, that stay equal and learn from their rows of each batch.

    net = troupe.DataParallel(model, cluster, shard="all"); net(x) is a future of the forward of all rows. Options: on (workers, for a
    module), buffers, first_bucket, bucket (bytes), compression ("bf16", "fp16", "topk(0.01)", "1bit", "powersgd(2)"),
    aggregation ("mean", "median", "trimmed_mean(0.25)", "clipped_mean(1)"), average_every (steps between two means of parameters, of replicas
    that learn by themselves), average_after, outer_lr, outer_momentum, outer_nesterov, shard ("none", "state", "gradients", "all": what replicas divide),
    gather and reduce ("use", "step"), spare_pieces (1: each has those of the one before it, too, so that one that is lost can be
    replaced).
    """

    def __init__(self, model, cluster, **options):
        self._core = _core.replicas(cluster._core, model, **options)
        if hasattr(model, "_troupe_spec"):
            self.load_state_dict(model.state_dict())
            self.train(model.training)

    @property
    def _actors(self):
        return self._core.actors()

    def replicas(self):
        """The actors."""
        return self._core.actors()

    def __call__(self, x):
        return self._core.rows("forward", _core.split(x))

    @staticmethod
    def split(x):
        """An argument whose rows the replicas divide; or of a list, what each of them gets."""
        return _core.split(x)

    def rows(self, method, *args):
        """A future of what a method gives for the rows of all, in their order: net.rows("forward", net.split(x))."""
        return self._core.rows(method, *args)

    def mean(self, method, *args):
        """A future of the mean over all rows of what a method gives, such as a loss."""
        return self._core.mean(method, *args)

    def average(self):
        """Replicas that learn by themselves (average_every) take the mean of their parameters now."""
        self._core.average()

    def accumulate(self):
        """with net.accumulate(): passes leave their gradients with the replicas; the next one sums them as well."""
        return _Accumulation(self._core)

    def state_dict(self):
        """Parameters and buffers by name, whole whatever replicas divide."""
        return self._core.state_dict()

    def load_state_dict(self, state):
        """All replicas take them."""
        self._core.load_state_dict(dict(state))

    def report(self):
        """What each replica keeps in how many bytes, and sent in the last step."""
        return self._core.report()

    def train(self, mode=True):
        """Training mode of all replicas."""
        for actor in self.replicas():
            actor.train(mode)
        return self

    def eval(self):
        """Evaluation mode."""
        return self.train(False)

    def __len__(self):
        return len(self.replicas())

    def __repr__(self):
        return "<%d replicas: %s>" % (len(self), ", ".join(map(repr, self.replicas())))


class _Accumulation:
    def __init__(self, replicas):
        self._replicas = replicas

    def __enter__(self):
        self._open = self._replicas.accumulate()
        return self

    def __exit__(self, *_):
        self._open.close()


class _AnyPipeline:
    def step(self, x, y, weights=None):
        """A future of the forward and backward of a batch, within a context: a dict of loss, losses, weight."""
        return self._core.step(x, y, weights)

    def forward(self, x):
        """The outputs of the micro-batches."""
        return self._core.forward(x)

    def report(self):
        """What the last step did, or what each actor keeps."""
        return self._core.report()


class Pipeline(_AnyPipeline):
    """A model in stages: actors, or dicts of actor, method, loss, carries. Options: schedule, micro_batches, chunks, slices, checkpoint, timeout, and
    loss: an operator of (output, target), "cross_entropy"."""

    def __init__(self, stages, cluster, **options):
        self._stages = list(stages)
        self._core = _core.pipeline(cluster._core, self._stages, **options)

    @property
    def _actors(self):
        return [s["actor"] if isinstance(s, dict) else s for s in self._stages]


class Pipelines(_AnyPipeline):
    """A model in stages on a mesh of workers, cluster.mesh({"dp": 2, "pp": 2}): a module for each stage (with chunks, as many
    on each worker), of which each replica trains on its rows; or actors, one for each point. Along "tp" and "cp" TransformerEncoderLayer and MultiheadAttention in the Sequential of a stage
    are cut by heads and by time (context="heads" or "ring"); along "ep" lie experts (experts=8, or {"count": 8, "top_k": 2, "capacity":
    1.25, "shared": 0}) in the place of a layer's two Linear. Options: those of Pipeline, shard, gather, reduce, method, stages, replicas,
    context, experts. With shard="all", or experts, the workers draw the initial values, which draw=True agrees to."""

    def __init__(self, stages, mesh, draw=False, **options):
        stages = list(stages)
        modules = stages and hasattr(stages[0], "_troupe_spec")
        if modules and not draw and (options.get("shard") == "all" or options.get("experts")):
            which = 'shard="all"' if options.get("shard") == "all" else "experts=..."
            raise TypeError("Pipelines(%s) has the workers draw the initial values, not those of the modules: write draw=True" % which)
        self._core = _core.pipelines(mesh, stages, **options)
        if modules and not draw:
            for actor, stage in zip(self.actors(), mesh.coordinates(options.get("stages", "pp"), options.get("chunks", 1))):
                state = stages[stage].state_dict()
                if actor.type.endswith("MeshModule"):  # of which it has a part
                    actor.load_stage(state).result()
                else:
                    actor.load_state_dict(state)
                actor.train(stages[stage].training)

    @property
    def _actors(self):
        return self._core.actors()

    def actors(self):
        """In the order of the mesh's points."""
        return self._core.actors()

    def replace(self, worker, by):
        """Between two steps: what that worker has of the model is on the other one from now on. All actors are others then: actors()."""
        self._core.replace(worker, by)

    def shrink(self, replica):
        """Between two steps: that replica goes, with all its stages; they count from 0."""
        self._core.shrink(replica)


def plan(profile, **options):
    """The quickest layouts of a model that cluster.measure() has timed, or of a file of that: print(troupe.plan(profile)["table"]). Options:
    workers, per_host, batch, memory ("2G"), parts, stages, sequences, shown, judge (a layout file), layout (a file that it writes)."""
    return _core.plan(profile, **options)


def serve(tensors, cluster, on, **options):
    """Puts tensors, or a module's parameters, into servers on a worker or several. Options: policy ("bsp", "ssp(3)", "async", ...),
    trainers, optimizer (a name) and its options (lr, ...), lr_by_delay, block_bytes,
    and backup: a worker whose servers go on when one of these is lost."""
    if hasattr(tensors, "parameters"):
        tensors = list(tensors.parameters())
    return _core.serve_tensors(cluster._core, tensors, on, **options)


class Group:
    """A process group; this process does the part of its own worker. Options of operations: op, tag, timeout, way, rows."""

    def __init__(self, core):
        self._core = core

    def __len__(self):
        return len(self._core)

    size = __len__

    def rank(self):
        """Of this process's worker."""
        return self._core.rank()

    def label(self, rank):
        """Who that is."""
        return self._core.label(rank)

    def subset(self, ranks, name):
        """A group of some members, in that order."""
        return Group(self._core.subset(list(ranks), name))


def _operation(name, has_tensor, has_peer):
    def operation(self, *args, **options):
        expected = has_tensor + has_peer
        if len(args) != expected:
            raise TypeError("group.%s takes %s, and options by name" % (
                name, " and ".join(["a tensor"] * has_tensor + ["a rank"] * has_peer) or "nothing"))
        x = args[0] if has_tensor else None
        return self._core.run(name, x, args[-1] if has_peer else 0, **options)
    operation.__name__ = name
    operation.__doc__ = "A future of the operation, of which this process does the part of its worker."
    return operation


for _name, _tensor, _peer in (("all_reduce", 1, 0), ("reduce", 1, 1), ("reduce_scatter", 1, 0), ("broadcast", 1, 1), ("scatter", 1, 1),
                              ("gather", 1, 1), ("all_gather", 1, 0), ("all_to_all", 1, 0), ("barrier", 0, 0), ("tune", 0, 0), ("send", 1, 1),
                              ("receive", 0, 1)):
    setattr(Group, _name, _operation(_name, _tensor, _peer))
