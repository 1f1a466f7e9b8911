// What a program gives its job before the loop: a checkpoint says it anew, and what it says comes first.
#pragma once
#include <map>
#include <string>

#include "core/graph/stateful.h"

namespace troupe::internal {

/// Numbers by their names, "sgd#0.group0.lr", of the driver and of actors, by path. As texts, to compare.
using Given = std::map<std::string, std::map<std::string, std::string>>;

/// Of a state before the first step: rates, scales and other options; few of them, and no parameters.
std::map<std::string, std::string> given_in(const StateDict& rest);
/// A sentence about what a program gives now, and gave otherwise when the job began: it is not taken. Empty
/// if there is nothing.
std::string given_otherwise(const Given& first, const Given& now);

}  // namespace troupe::internal
