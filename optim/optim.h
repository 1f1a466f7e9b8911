// Optimizers and what goes with them.
#pragma once
#include "optim/adam.h"
#include "optim/adamax.h"
#include "optim/clip.h"
#include "optim/lamb.h"
#include "optim/loss_scaler.h"
#include "optim/nadam.h"
#include "optim/optimizer.h"
#include "optim/rmsprop.h"
#include "optim/rprop.h"
#include "optim/schedule.h"
#include "optim/sgd.h"
