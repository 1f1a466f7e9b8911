// The modules that are alive, by their addresses: how a member is found that members() does not list.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::nn {

class Module;

/// Of a module's constructors and destructor.
void module_made(Module& module);
void module_gone(Module& module);
/// Those of these numbers that are alive, in that order. Each module gets a number when it is made, never
/// given twice, which a ConstructionScope hears of.
std::vector<Module*> modules_numbered(const std::vector<std::uint64_t>& numbers);
/// Those alive that an actor made (its cell; null: those that no actor made), in the order of their
/// construction.
std::vector<Module*> modules_made_by(const void* actor);
/// Those that lie in `size` bytes from `begin` on: members of the object there, their members, and so on. In
/// the order of their addresses.
std::vector<Module*> modules_within(const void* begin, std::size_t size);

}  // namespace troupe::nn
