#include "ops/einsum.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

// A letter, by its number; after them come the dimensions of "...", counted from the right, so that they
// broadcast.
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kLetters = 52, kLabels = kLetters + kMaxDims;

[[noreturn]] void refuse(const std::string& equation, const std::string& text) {
  throw_invalid(fmt::format("[einsum] \"{}\": {}", equation, text));
}

bool holds(const Labels& labels, Label one) {
  return std::find(labels.begin(), labels.end(), one) != labels.end();
}

// A tensor whose dimensions have labels.
struct Labelled {
  Tensor t;
  Labels labels;
};

// One side of a comma, with "..." in the place of `dots` dimensions.
Labels read(const std::string& equation, std::string_view term, int dots) {
  Labels out;
  bool open = false;
  for (size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c >= 'A' && c <= 'Z') {
      out.push_back(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      out.push_back(26 + c - 'a');
    } else if (term.substr(i, 3) == "..." && !open) {
      open = true, i += 2;
      for (int k = dots - 1; k >= 0; --k) out.push_back(kLetters + k);
    } else {
      refuse(equation, fmt::format("\"{}\" has something else than letters and one \"...\"", term));
    }
  }
  return out;
}

int letters_in(std::string_view term) {
  return static_cast<int>(std::count_if(term.begin(), term.end(), [](char c) { return c != '.'; }));
}

// The diagonal of two dimensions of one size, which is last.
Tensor diagonal(const Tensor& x, int64_t a, int64_t b) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d != a && d != b) order.push_back(d);
  order.push_back(a), order.push_back(b);
  const Tensor moved = permute(x, order);
  const int64_t n = moved.size(-1);
  std::vector<int64_t> flat = {moved.shape().begin(), moved.shape().end() - 2};
  flat.push_back(n * n);
  if (n == 0) return reshape(moved, flat);
  return slice(reshape(moved, flat), moved.dim() - 2, 0, n * n, n + 1);
}

// Each label once.
Labelled without_repeats(const std::string& equation, Labelled x) {
  for (size_t b = 1; b < x.labels.size();) {
    const size_t a =
        static_cast<size_t>(std::find(x.labels.begin(), x.labels.end(), x.labels[b]) - x.labels.begin());
    if (a == b) {
      ++b;
      continue;
    }
    const Label label = x.labels[b];
    if (x.t.size(static_cast<int64_t>(a)) != x.t.size(static_cast<int64_t>(b)))
      refuse(equation, fmt::format("a letter stands twice for different sizes of {}", x.t.summary()));
    x.t = diagonal(x.t, static_cast<int64_t>(a), static_cast<int64_t>(b));
    x.labels.erase(x.labels.begin() + static_cast<int64_t>(b));
    x.labels.erase(x.labels.begin() + static_cast<int64_t>(a));
    x.labels.push_back(label);
    b = 1;
  }
  return x;
}

// Sums over the labels that `keep` lacks.
Labelled summed(const Labelled& x, const Labels& keep) {
  std::vector<int64_t> gone;
  Labels left;
  for (size_t d = 0; d < x.labels.size(); ++d)
    if (holds(keep, x.labels[d]))
      left.push_back(x.labels[d]);
    else
      gone.push_back(static_cast<int64_t>(d));
  return gone.empty() ? x : Labelled{sum(x.t, gone), left};
}

// Its dimensions in the order of `labels`, which it has, joined to groups of so many.
Tensor grouped(const Labelled& x, const std::array<Labels, 3>& groups) {
  std::vector<int64_t> order, sizes;
  for (const Labels& group : groups) {
    int64_t size = 1;
    for (const Label label : group) {
      const int64_t d = std::find(x.labels.begin(), x.labels.end(), label) - x.labels.begin();
      order.push_back(d);
      size *= x.t.size(d);
    }
    sizes.push_back(size);
  }
  return reshape(permute(x.t, order), sizes);
}

// The sum of products over what both have and `keep` lacks.
Labelled product(const Labelled& a, const Labelled& b, const Labels& keep,
                 const std::array<int64_t, kLabels>& size) {
  const auto needed = [&](const Labelled& x, const Labelled& other) {
    Labels out = keep;
    for (const Label label : x.labels)
      if (holds(other.labels, label)) out.push_back(label);
    return out;
  };
  const auto alone = [](const Labelled& one, const Labels& kept) {
    const bool wide = is_half(one.t.dtype()) &&
                      !std::ranges::all_of(one.labels, [&](Label label) { return holds(kept, label); });
    return summed(wide ? Labelled{to(one.t, float32), one.labels} : one, kept);
  };
  const Labelled x = alone(a, needed(a, b)), y = alone(b, needed(b, a));
  Labels batch, over, left, right;
  for (const Label label : x.labels) {
    if (!holds(y.labels, label))
      left.push_back(label);
    else
      (holds(keep, label) ? batch : over).push_back(label);
  }
  for (const Label label : y.labels)
    if (!holds(x.labels, label)) right.push_back(label);
  // What was summed alone is int64 of integers and float32 of halves. Products without a sum promote.
  const DType given = a.t.dtype(), t = promote_types(x.t.dtype(), y.t.dtype());
  const bool one_dtype = given == b.t.dtype();
  const auto alike = [&](const Tensor& one) { return one_dtype || !is_floating(t) ? to(one, t) : one; };
  const Tensor first = grouped(x, {batch, left, over}), second = grouped(y, {batch, over, right});
  Tensor z = over.empty() ? mul(first, second) : matmul(alike(first), alike(second));
  if (one_dtype && is_half(given)) z = to(z, given);
  Labelled out;
  std::vector<int64_t> sizes;
  for (const Labels* group : {&batch, &left, &right})
    for (const Label label : *group)
      out.labels.push_back(label), sizes.push_back(size[static_cast<size_t>(label)]);
  if (sizes.size() > static_cast<size_t>(kMaxDims))
    throw_invalid(fmt::format("[einsum] a product on the way has {} dimensions, the most are {}",
                              sizes.size(), kMaxDims));
  out.t = reshape(z, sizes);
  return out;
}

}  // namespace

namespace {

// The operands by their labels, and what they say together.
struct Operands {
  std::vector<Labelled> parts;
  std::array<int64_t, kLabels> size;  // of each label; -1: no operand has it
  int most_dots = 0;                  // dimensions that "..." stands for
};

Operands read_operands(const std::string& equation, const std::string& left, const Tensors& operands) {
  std::vector<std::string> terms(1);
  for (const char c : left) c == ',' ? terms.emplace_back() : terms.back() += c, void();
  if (terms.size() != operands.size() || operands.empty())
    refuse(equation, fmt::format("stands for {} tensors, got {}", terms.size(), operands.size()));
  Operands out;
  auto& [parts, size, most_dots] = out;
  size.fill(-1);
  for (size_t i = 0; i < terms.size(); ++i) {
    const Tensor& t = operands[i];
    if (!t.defined()) refuse(equation, "got an undefined tensor");
    const bool open = terms[i].find("...") != std::string::npos;
    const int dots = open ? t.dim() - letters_in(terms[i]) : 0;
    const Labels labels = dots < 0 ? Labels() : read(equation, terms[i], dots);
    if (dots < 0 || labels.size() != static_cast<size_t>(t.dim()))
      refuse(equation, fmt::format("\"{}\" does not fit the dimensions of {}", terms[i], t.summary()));
    most_dots = std::max(most_dots, dots);
    parts.push_back(without_repeats(equation, {t, labels}));
    for (size_t d = 0; d < parts.back().labels.size(); ++d) {
      int64_t& known = size[static_cast<size_t>(parts.back().labels[d])];
      const int64_t n = parts.back().t.size(static_cast<int64_t>(d));
      if (known > 1 && n > 1 && known != n)
        refuse(equation, fmt::format("a letter stands for the sizes {} and {}", known, n));
      if (known == -1 || known == 1) known = n;
      if (n != 1 && known != n)
        refuse(equation, fmt::format("a letter stands for the sizes {} and {}", known, n));
    }
  }
  for (Labelled& part : parts) {
    std::vector<int64_t> sizes;
    for (const Label label : part.labels) sizes.push_back(size[static_cast<size_t>(label)]);
    part.t = expand(part.t, sizes);
  }
  return out;
}

// The labels of the result, in order.
Labels read_result(const std::string& equation, const std::string& text, const Operands& operands) {
  const size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  Labels wanted;
  if (arrow != std::string::npos) {
    wanted = read(equation, std::string_view(text).substr(arrow + 2), operands.most_dots);
  } else {
    for (int k = operands.most_dots - 1; k >= 0; --k) wanted.push_back(kLetters + k);
    for (Label label = 0; label < kLetters; ++label)
      if (std::count(left.begin(), left.end(), label < 26 ? 'A' + label : 'a' + label - 26) == 1)
        wanted.push_back(label);
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (operands.size[static_cast<size_t>(wanted[i])] == -1)
      refuse(equation, "the result has a letter that no tensor has");
    if (std::count(wanted.begin(), wanted.end(), wanted[i]) > 1)
      refuse(equation, "the result has a letter twice");
  }
  return wanted;
}

}  // namespace

Tensor einsum(const std::string& equation, const Tensors& operands) {
  std::string text = equation;
  std::erase(text, ' ');
  const Operands read = read_operands(equation, text.substr(0, text.find("->")), operands);
  const Labels wanted = read_result(equation, text, read);
  const auto& parts = read.parts;
  Labelled all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    Labels keep = wanted;
    for (size_t k = i + 1; k < parts.size(); ++k)
      keep.insert(keep.end(), parts[k].labels.begin(), parts[k].labels.end());
    all = product(all, parts[i], keep, read.size);
  }
  all = summed(all, wanted);
  std::vector<int64_t> order;
  for (const Label label : wanted)
    order.push_back(std::find(all.labels.begin(), all.labels.end(), label) - all.labels.begin());
  return permute(all.t, order);
}

}  // namespace troupe::ops
