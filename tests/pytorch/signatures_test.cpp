// Walks every operator and function, and compares it with PyTorch's signature.
#include <algorithm>
#include <map>
#include <set>

#include "ops/function_catalog.h"
#include "tests/pytorch/line.h"
#include "tests/pytorch/signatures.h"

using namespace troupe;
using troupe::testing::Forms;
using troupe::testing::Has;
using troupe::testing::Signature;

namespace {

struct Named {
  std::string name;
  std::optional<std::string> standard;
};

// One spelling of defaults: "None", "()" and "[]" alike, "[1]" as 1, and numbers as numbers.
std::string plain(std::string text) {
  for (const char quote : {'\'', '"'}) std::erase(text, quote);
  if (text == "None" || text == "()" || text == "[]" || text == "null") return "none";
  if (text == "True" || text == "False") return text == "True" ? "true" : "false";
  if (text.size() > 2 && text.front() == '[' && text.find(',') == std::string::npos)
    text = text.substr(1, text.size() - 2);
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return end && !*end ? std::to_string(number) : text;
}

std::vector<Named> parsed(const std::string& parameters) {
  std::vector<Named> out;
  size_t from = 0;
  while (from < parameters.size()) {
    const size_t end = std::min(parameters.find(", ", from), parameters.size());
    const std::string one = parameters.substr(from, end - from);
    const size_t equals = one.find('=');
    out.push_back({one.substr(0, equals), equals == std::string::npos ? std::optional<std::string>()
                                                                      : plain(one.substr(equals + 1))});
    from = end + 2;
  }
  return out;
}

std::vector<Entry> known() {
  std::vector<Entry> out;
  for (const ops::Op* op : ops::all_ops())
    if (!op->internal) out.push_back(ops::entry_of(*op));
  for (const auto& f : ops::functions()) out.push_back(f);
  return out;
}

// What differs, or nothing. Ours are some of PyTorch's parameters, in its order; what follows where one is
// left out is given by name there, too. A default of our own stands only where PyTorch has none.
std::string difference(const Entry& ours, const std::vector<Named>& theirs) {
  size_t at = 0;
  for (const Parameter& p : ours.parameters) {
    while (at < theirs.size() && theirs[at].name != p.name) {
      if (!theirs[at].standard) return "lacks " + theirs[at].name + ", or has it elsewhere";
      ++at;
    }
    if (at == theirs.size()) return "has " + p.name + ", which PyTorch has not, or elsewhere";
    if (theirs[at].standard) {
      if (!p.standard) return p.name + " has no default, there " + *theirs[at].standard;
      if (plain(text_of(*p.standard)) != *theirs[at].standard)
        return p.name + " is " + plain(text_of(*p.standard)) + " by default, there " + *theirs[at].standard;
    }
    ++at;
  }
  for (; at < theirs.size(); ++at)
    if (!theirs[at].standard) return "lacks " + theirs[at].name;
  return "";
}

}  // namespace

TEST_CASE("every operator and function has PyTorch's name, order of arguments and defaults") {
  std::map<std::string, Signature> table;
  for (const Signature& s : testing::pytorch_signatures()) CHECK(table.emplace(s.name, s).second);
  std::set<std::string> own, seen;
  for (const auto& [name, why] : testing::troupe_only()) own.insert(name);
  for (const Entry& entry : known()) {
    INFO(entry.signature());
    seen.insert(entry.name);
    if (own.count(entry.name)) continue;
    const auto it = table.find(entry.name);
    REQUIRE(it != table.end());
    CHECK(difference(entry, parsed(it->second.parameters)) == "");
  }
  for (const auto& [name, signature] : table)
    if (!seen.count(name)) FAIL_CHECK(name << " is not there");
  for (const std::string& name : own)
    if (!seen.count(name)) FAIL_CHECK(name << " is not there");
}

TEST_CASE("what PyTorch has as a function and as a method is here both") {
  std::map<std::string, Forms> table;
  for (const Forms& f : testing::forms()) CHECK(table.emplace(f.name, f).second);
  for (const Signature& s : testing::pytorch_signatures()) {
    INFO(s.name);
    if (s.has != Has::both) continue;
    const auto it = table.find(s.name);
    REQUIRE(it != table.end());
    CHECK(it->second.function() == it->second.method());
    table.erase(it);
  }
  CHECK(table.empty());
}

TEST_CASE("a signature that differs is found") {
  const Entry entry = ops::entry_of(*ops::find_op("gather"));
  CHECK(difference(entry, parsed("input, dim, index")) == "");
  CHECK(difference(entry, parsed("input, index, dim")) != "");
  CHECK(difference(entry, parsed("input, dim, index, out")) == "lacks out");
  CHECK(difference(ops::entry_of(*ops::find_op("topk")), parsed("input, k, dim=0, largest=True")) != "");
}
