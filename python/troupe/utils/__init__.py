"""What training loops use of torch.utils."""
from . import data
