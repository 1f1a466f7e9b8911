// Models in stages: pipelines, their schedules, a model cut into parts, updates that come one step late.
#pragma once
#include "parallel/pipeline/delayed_updates.h"
#include "parallel/pipeline/module_stage.h"
#include "parallel/pipeline/pipelines.h"
#include "parallel/pipeline/schedule/choose_policy.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/schedule/schedule_check.h"
#include "parallel/pipeline/schedule/simulate.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/stage_layers.h"
#include "troupe/troupe.h"
