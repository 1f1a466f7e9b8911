"""onnxruntime computes what the test has written: onnx_reads.py FOLDER with NAME.onnx and NAME.safetensors (input, output)."""
import pathlib
import sys

import onnx
import onnxruntime
from safetensors.numpy import load_file

wrong = 0
for file in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
    try:
        onnx.checker.check_model(onnx.load(file), full_check=True)
        values = load_file(file.with_suffix(".safetensors"))
        got = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]).run(None, {"input": values["input"]})[0]
        off = abs(got.astype("float64") - values["output"].astype("float64")).max()
        good = got.shape == values["output"].shape and off < 2e-5
        print(file.name, got.shape, "off by", off, "" if good else "WRONG")
    except Exception as e:
        good = False
        print(file.name, "WRONG", str(e)[:600])
    wrong += not good
sys.exit(wrong)
