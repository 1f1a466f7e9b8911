// Modules by name, from values: what configuration files, shells and messages build networks of.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "core/entry/maker.h"
#include "nn/module.h"

namespace troupe::nn {

/// Every module here that is a Layer, by name ("linear", "conv2d", "sequential", ...). Parameters are those
/// of its constructor, then the fields of its options, with their names, order and defaults. Where a size has
/// one number for the height and one for the width, one number stands for both.
std::span<const Maker<std::shared_ptr<Layer>>> modules();

/// A module as a value that can be sent and kept: a map of its name under "module", and every parameter by
/// name: spec_of("linear", {784, 128}) is {module = "linear", in = 784, out = 128, bias = true, dtype =
/// "float32"}. The arguments of "sequential" are specifications of its layers (or one list of them), in any
/// form that make() takes: {module = "sequential", layers = [...]}. What is composed by code, with skips or
/// shared layers, has none. `invalid`, with the nearest name or the signature, for an unknown module and for
/// arguments that do not fit; what make() says of their values is said there.
Value spec_of(std::string_view module, ValueList positional = {}, ValueMap named = {});

/// The module that a specification describes: a map as spec_of() gives it, which may leave out defaults; a
/// name alone ("relu"), of a module that needs no arguments; or a list of specifications, a sequential. A
/// sequential computes what one written in C++ does, with the same bits and the same operators. `invalid` as
/// spec_of(), for what its constructor refuses, and for layers nested more than 100 deep.
std::shared_ptr<Layer> make(const Value& spec);

}  // namespace troupe::nn
