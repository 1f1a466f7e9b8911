#include "parallel/server/compression/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "parallel/server/compression/own_compression.h"

namespace troupe::parallel {
namespace {

using Kind = Compression::Kind;

constexpr std::pair<Kind, const char*> kNames[] = {
    {Kind::none, "none"}, {Kind::fp16, "fp16"}, {Kind::bf16, "bf16"}, {Kind::onebit, "1bit"}};
constexpr const char* kTop = "topk(";
constexpr const char* kAnyTop = "topk";

[[noreturn]] void unknown_compression(const std::string& text) {
  throw_invalid("[compression] \"" + text +
                "\"; expected none, fp16, bf16, topk(fraction) with a fraction above 0 and at most 1, or "
                "1bit; between replicas also one of those that are registered here: " +
                own_compressions());
}

}  // namespace

std::string Compression::str() const {
  std::string text = kind == Kind::topk ? fmt::format("topk({})", fraction) : name;
  for (const auto& [of, word] : kNames)
    if (of == kind) text = word;
  return text;
}

Compression Compression::parse(const std::string& text) {
  Compression out;
  for (const auto& [kind, name] : kNames)
    if (text == name) {
      out.kind = kind;
      return out;
    }
  if (!text.starts_with(kAnyTop) && own_compression(text)) {
    out.kind = Kind::own;
    out.name = text;
    return out;
  }
  if (!text.starts_with(kTop) || !text.ends_with(")")) unknown_compression(text);
  std::string_view fraction = text;
  fraction.remove_prefix(std::string_view(kTop).size());
  fraction.remove_suffix(1);
  out.kind = Kind::topk;
  out.fraction = number_in(fraction).value_or(0);
  if (!(out.fraction > 0 && out.fraction <= 1)) unknown_compression(text);
  return out;
}

}  // namespace troupe::parallel

namespace troupe::internal::parallel {

void check_pushes(const troupe::parallel::Compression& compression, const std::string& what) {
  if (compression.kind == troupe::parallel::Compression::Kind::own)
    throw_invalid(what + " compression \"" + compression.str() +
                  "\" is a function that replicas run together, and no form of what goes to a server; "
                  "expected none, fp16, bf16, topk(fraction) or 1bit, or a DataParallel");
}

void check_pulls(const troupe::parallel::Compression& compression, const std::string& what) {
  check_pushes(compression, what);
  if (compression.keeps_residual())
    throw_invalid(what + " pulls compressed as \"" + compression.str() +
                  "\": a pull brings whole values, of which that leaves out the most; expected none, fp16 or "
                  "bf16 for pulls, and " +
                  compression.str() + " for pushes");
}

}  // namespace troupe::internal::parallel
