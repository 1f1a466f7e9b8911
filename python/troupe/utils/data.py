"""Data sets of Python objects, in batches: as torch.utils.data, without processes."""
from .. import ops
from .._tensor import as_tensor, tensor


class Dataset:
    """Something with a length, and samples by number."""

    def __getitem__(self, index):
        raise NotImplementedError("a data set has __getitem__(index) and __len__()")


class TensorDataset(Dataset):
    """Tensors whose rows belong together."""

    def __init__(self, *tensors):
        if any(len(t) != len(tensors[0]) for t in tensors):
            raise ValueError("tensors of a data set have as many rows as each other: got " + ", ".join(str(len(t)) for t in tensors))
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


def default_collate(samples):
    """Samples as a batch: tensors and numbers are stacked, tuples and dicts by their parts."""
    first = samples[0]
    if isinstance(first, dict):
        return {k: default_collate([s[k] for s in samples]) for k in first}
    if isinstance(first, (tuple, list)):
        return type(first)(default_collate(list(part)) for part in zip(*samples))
    if isinstance(first, (int, float)):
        return tensor(samples)
    return ops.stack([as_tensor(s) for s in samples]) if not isinstance(first, str) else list(samples)


class DataLoader:
    """Batches of a data set; each pass has an order of its own, of the numbers that troupe.manual_seed() begins."""

    def __init__(self, dataset, batch_size=1, shuffle=False, drop_last=False, collate_fn=None, sampler=None, num_workers=0, pin_memory=False):
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self._shuffle, self._collate, self._sampler = shuffle, collate_fn, sampler

    def __len__(self):
        n = len(self.dataset if self._sampler is None else self._sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def _order(self):
        if self._sampler is not None:
            return list(self._sampler)
        return ops.randperm(len(self.dataset)).tolist() if self._shuffle else list(range(len(self.dataset)))

    def __iter__(self):
        order = self._order()
        for i in range(len(self)):
            rows = order[i * self.batch_size:(i + 1) * self.batch_size]
            if isinstance(self.dataset, TensorDataset) and self._collate is None:
                yield list(self.dataset[rows])
            else:
                yield (self._collate or default_collate)([self.dataset[r] for r in rows])


def random_split(dataset, lengths):
    """Parts of a data set, of these lengths, whose samples are chosen at random."""
    if sum(lengths) != len(dataset):
        raise ValueError("the lengths add up to %d, and the data set has %d samples" % (sum(lengths), len(dataset)))
    order, parts = ops.randperm(len(dataset)).tolist(), []
    for n in lengths:
        parts.append(Subset(dataset, order[:n]))
        order = order[n:]
    return parts


class Subset(Dataset):
    """Some samples of a data set, by their numbers."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, list(indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)
