// Data: readers and writers of files, orders of samples, padding, prefetching. The loader is in troupe.h,
// too.
#pragma once
#include "data/csv.h"
#include "data/digits.h"
#include "data/idx.h"
#include "data/loader.h"
#include "data/npy.h"
#include "data/padding.h"
#include "data/prefetch.h"
#include "data/safetensors.h"
#include "data/sampler.h"
#include "data/text.h"
#include "troupe/troupe.h"
