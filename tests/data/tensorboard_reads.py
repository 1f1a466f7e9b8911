#!/usr/bin/env python3
"""What summary_test.cpp has written, as TensorBoard reads it: tensorboard_reads.py FOLDER"""
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

all_ = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0, "images": 0})
all_.Reload()
losses = all_.Scalars("loss")
assert [e.step for e in losses] == list(range(100)), losses
assert all(abs(e.value - 1 / (e.step + 1)) < 1e-6 for e in losses)
weights = all_.Histograms("weights")[0]
assert weights.step == 7 and weights.histogram_value.num == 1000 and weights.histogram_value.max == 999
assert sum(weights.histogram_value.bucket) == 1000
assert all_.Histograms("nothing")[0].histogram_value.num == 0
notes = all_.Tensors("notes")[0]
assert notes.step == 1 and notes.tensor_proto.string_val[0] == b"**first**"
for tag, height, width, signature in (("grey", 2, 3, b"\x89PNG"), ("colours", 4, 5, b"\x89PNG")):
    picture = all_.Images(tag)[0]
    assert (picture.step, picture.height, picture.width) == (2, height, width) and picture.encoded_image_string.startswith(signature)
