// A running job as a guest sees it.
#pragma once
#include <memory>

#include "troupe/cluster/cluster.h"
#include "troupe/watch/attachment.h"

namespace troupe {

/// This process becomes a guest of that job: none of its workers, which go on as if it were not there. It may
/// ask what they do, and, where the job was started with --control, call actors and make some, without
/// gradients; what it holds goes with it. Its end is the end of the guest alone. Workers that join later are
/// not seen.
std::unique_ptr<Cluster> attach(const internal::watch::Attachment& to, const ClusterOptions& options = {});

}  // namespace troupe
