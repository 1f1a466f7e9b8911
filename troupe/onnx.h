// Models for other programs: ONNX files, and tensors by DLPack.
#pragma once
#include "core/graph/dlpack.h"
#include "troupe/onnx/export_onnx.h"
#include "troupe/troupe.h"
