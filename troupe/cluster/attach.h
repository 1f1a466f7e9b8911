// A running job as a guest sees it.
#pragma once
#include <memory>
#include <string>

#include "troupe/cluster/cluster.h"
#include "troupe/watch/attachment.h"

namespace troupe {

/// This process becomes a guest of a job of this user on this host, whose name, or that of its program,
/// begins so: none of its workers, which go on as if it were not there. It may ask what they do, and, where
/// the job was started with --control, call actors and make some, and train on workers that it claims
/// (Claim); what it holds goes with it. The end of the cluster is the end of the guest alone. Workers that
/// join later are not seen. `invalid` if there is no such job, or several.
std::unique_ptr<Cluster> attach(const std::string& job, const ClusterOptions& options = {});
/// The same with what its door has said.
std::unique_ptr<Cluster> attach(const internal::watch::Attachment& to, const ClusterOptions& options = {});

}  // namespace troupe
