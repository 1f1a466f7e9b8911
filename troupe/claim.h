// Several programs on one cluster: what a program includes to attach to a running job and to claim workers.
#pragma once
#include "troupe/cluster/attach.h"
#include "troupe/cluster/claim.h"
