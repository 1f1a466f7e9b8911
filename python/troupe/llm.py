"""Language models in Hugging Face's files: model = llm.load_pretrained("Qwen3-0.6B"); model.generate(ids, max_new_tokens=20)."""
import json

from . import _core
from ._core import ServedModel, Tokenizer
from ._parallel import _AnyPipeline


class Decoder:
    """A decoder of a configuration, a dict with the names of config.json. model(ids) gives logits [batch, time, vocab_size]."""

    def __init__(self, config):
        self._core = _core.make_language_model(json.dumps(config))

    @classmethod
    def _of(cls, core):
        model = cls.__new__(cls)
        model._core = core
        return model

    config = property(lambda self: json.loads(self._core.config()), doc="As config.json has it.")

    def __call__(self, ids):
        return self._core.forward(ids)

    forward = __call__

    def generate(self, ids, **options):
        """What ids go on with; of a list of lists, what each does. Options: max_new_tokens, temperature, top_k, top_p, seed, stop."""
        return self._core.generate(ids, **options)

    def named_parameters(self):
        """Names and parameters."""
        return list(self._core.parameters().items())

    def parameters(self):
        """All of them; beside adapters the others are frozen."""
        return list(self._core.parameters().values())

    def zero_grad(self):
        """No gradients any more."""
        for p in self.parameters():
            p.grad = None

    def state_dict(self):
        """Parameters by name."""
        return self._core.state_dict()

    def train(self, mode=True):
        """Training mode: dropout of adapters."""
        self._core.train(mode)
        return self

    def eval(self):
        """Evaluation mode."""
        return self.train(False)

    def merge_adapters(self):
        """The weights do from now on what both did."""
        self._core.merge()

    def save_pretrained(self, folder):
        """Writes the model, or its adapters."""
        self._core.save(str(folder))

    def __repr__(self):
        return self._core.__repr__()


class Stages(_AnyPipeline):
    """A language model on a mesh: step(x, y) in a context; of llm.stages()."""

    def __init__(self, core):
        self._core = core

    @property
    def _actors(self):
        return self._core.actors()

    def actors(self):
        """In the order of the mesh's points."""
        return self._core.actors()

    def save_pretrained(self, folder):
        """Writes the model, or its adapters."""
        _core.save_stages(self._core, str(folder))


def read_config(path):
    """What a config.json, or that of a folder, describes: a dict."""
    return json.loads(_core.language_config(str(path)))


def load_pretrained(folder, **options):
    """A model in this process. Options: dtype, adapters (a folder), lora (new ones: a rank, or a dict of r, lora_alpha, target_modules, ...)."""
    return Decoder._of(_core.load_language_model(str(folder), **options))


def save_pretrained(model, folder):
    """Writes a model, or what was trained on a mesh, or its adapters."""
    model.save_pretrained(folder)


def generate(model, ids, **options):
    """model.generate(ids, ...)."""
    return model.generate(ids, **options)


def stages(mesh, path, **options):
    """A folder's model, or with config.json alone a new one, on a mesh of "dp", "pp", "tp". Options: of Pipelines, shard, dtype, lora."""
    return Stages(_core.language_stages(mesh, str(path), **options))


def serve_model(cluster, folder, **options):
    """Serves a model on workers, which share its layers. Options: on, dtype, adapters, pages, page_size."""
    return _core.serve_language_model(cluster._core, str(folder), **options)
