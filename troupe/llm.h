// Language models: decoders of today's families, their files, adapters and generation.
#pragma once
#include "llm/adapters.h"
#include "llm/config.h"
#include "llm/decoder.h"
#include "llm/generate.h"
#include "llm/pretrained.h"
#include "llm/serve_model.h"
#include "llm/tokenizer.h"
#include "parallel/pipeline/module_stage.h"
#include "troupe/pipeline.h"
#include "troupe/tensor_parallel.h"
