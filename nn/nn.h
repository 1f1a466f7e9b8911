// Modules, all of them.
#pragma once
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "nn/norm_layer.h"
#include "nn/sequential.h"
#include "nn/summary.h"
