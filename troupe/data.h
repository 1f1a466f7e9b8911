// Data: readers and writers of files, orders of samples, padding, prefetching. The loader is in troupe.h,
// too.
#pragma once
#include "data/datasets/csv.h"
#include "data/datasets/digits.h"
#include "data/datasets/idx.h"
#include "data/datasets/loader.h"
#include "data/datasets/padding.h"
#include "data/datasets/prefetch.h"
#include "data/datasets/sampler.h"
#include "data/datasets/text.h"
#include "data/datasets/token_file.h"
#include "data/formats/npy.h"
#include "data/formats/safetensors.h"
#include "data/formats/summary.h"
#include "data/streams/feed.h"
#include "troupe/troupe.h"
