#include <ATen/ops/eye.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <new>
#include <nlohmann/json.hpp>

#include "pareprop/memory/out_of_memory.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/linear.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scratch_folder.h"

namespace pareprop::cli {
namespace {

using nlohmann::json;
using testing::lines;
using testing::run_program;

struct WrongUse {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<const char*> says;
};

void PrintTo(const WrongUse& use, std::ostream* out) { *out << use.name; }

class WrongUseTest : public ::testing::TestWithParam<WrongUse> {};

TEST_P(WrongUseTest, OneLineSaysWhy) {
  const auto run = run_program(GetParam().arguments);
  EXPECT_NE(run.code, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(lines(run.err), 1) << run.err;
  EXPECT_EQ(run.err.rfind("pareprop: ", 0), 0u) << run.err;
  for (const char* text : GetParam().says) {
    EXPECT_NE(run.err.find(text), std::string::npos) << "'" << text << "' in: " << run.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Run, WrongUseTest,
    ::testing::Values(
        WrongUse{"NoCommand",
                 {},
                 {"one of models, plan, train, eval, predict, export, convert, verify, bench, "
                  "report, trace, "
                  "demo, doctor, completion",
                  "'pareprop --help'"}},
        WrongUse{"UnknownCommand", {"trian"}, {"trian", "--help"}},
        WrongUse{
            "UnknownFlag", {"verify", "--dpeth", "3"}, {"--dpeth", "'pareprop verify --help'"}},
        WrongUse{"UnknownModel", {"verify", "--model", "vit_huger"}, {"vit_huger", "vit_huge,"}},
        WrongUse{"UnknownMode", {"verify", "--modes", "stored,fast"}, {"'fast'", "checkpoint"}},
        WrongUse{"EmptyMode", {"verify", "--modes", "stored,"}, {"''", "checkpoint"}},
        WrongUse{"UnknownPrecision", {"verify", "--precision", "fp16"}, {"fp16", "bf16"}},
        WrongUse{"NegativeDepth", {"verify", "--depth", "-1"}, {"--depth", "0 or more", "-1"}},
        WrongUse{"NotANumber", {"verify", "--batch", "two"}, {"--batch", "two"}},
        WrongUse{"NoBatch", {"verify", "--batch", "0"}, {"--batch", "1 or more", "got 0"}},
        WrongUse{"NoValue", {"verify", "--batch"}, {"--batch"}},
        WrongUse{"Dropout", {"verify", "--dropout", "1"}, {"--dropout", "0 <= P < 1"}},
        WrongUse{"TinyDropout",
                 {"bench", "--dropout", "1e-400000"},
                 {"--dropout", "fits into 64 bits", "1e-400000"}},
        WrongUse{"DropPath", {"verify", "--drop-path", "-0.5"}, {"--drop-path"}},
        WrongUse{"Threads", {"verify", "--threads", "-2"}, {"--threads", "0 or more"}},
        WrongUse{"ImageSize", {"verify", "--image-size", "30"}, {"30", "multiple", "16"}},
        WrongUse{"Width", {"verify", "--width", "100"}, {"100", "3 heads"}},
        WrongUse{"JsonFolder",
                 {"models", "--json", "/no/such/folder/a.json"},
                 {"/no/such/folder/a.json", "there is no folder"}},
        WrongUse{"VerifyJsonFolder",
                 {"verify", "--json", "/no/such/folder/a.json"},
                 {"there is no folder"}},
        WrongUse{"JsonIsAFolder", {"models", "--json", "/"}, {"is a folder"}},
        WrongUse{"DemoSteps", {"demo", "--steps", "0"}, {"--steps", "1 or more"}},
        WrongUse{"DemoBatch", {"demo", "--batch", "1499"}, {"at most the 1498 images"}},
        WrongUse{"DemoPrecision", {"demo", "--precision", "int8"}, {"int8"}},
        WrongUse{"DemoOut", {"demo", "--out", "/dev/null/x"}, {"cannot create the folder"}}),
    [](const auto& use) { return use.param.name; });

// F adds a number that is another one at each call: its recomputation cannot give the same.
class CountingModel : public models::Model {
 public:
  explicit CountingModel(at::ScalarType dtype) {
    weight_ = register_parameter("weight", at::eye(4, at::TensorOptions(dtype)));
    const BranchFunction counting = [this](const at::Tensor& x, const BranchCall&) {
      return pareprop::linear(x, weight_) + ++calls_;
    };
    const BranchFunction right = [this](const at::Tensor& x, const BranchCall&) {
      return pareprop::linear(x, weight_).tanh();
    };
    const Block block{Branch(counting, {weight_}), Branch(right, {weight_})};
    stack_ = add_stack(*this, "blocks", {block, block, block});
  }

  at::Tensor forward(const models::Batch& batch, const models::ForwardOptions& options) override {
    const CallOptions call{.extras = {}, .pass = pass_for(options)};
    const at::Tensor& input = batch.input;
    const auto [y1, y2] = options.reference ? stack_->reference(input, input, call)
                                            : stack_->forward(input, input, call);
    return y1 + y2;
  }
  models::Batch example(std::int64_t batch, std::uint64_t) const override {
    return {.input = at::zeros({batch, 4}, weight_.options().requires_grad(false)),
            .target = at::zeros({batch}, at::TensorOptions(at::kLong))};
  }
  std::int64_t tokens() const override { return 1; }

 private:
  at::Tensor weight_;
  Stack stack_{nullptr};
  int calls_ = 0;
};

// A suite of its own, which runs after those that list all networks.
TEST(VerifyBrokenNetwork, FindsABranchThatDoesNotComputeTheSameAgain) {
  models::register_model("counting",
                         [](const models::Overrides&, const models::WeightOptions& weights) {
                           return std::make_shared<CountingModel>(weights.dtype);
                         });
  const auto run =
      run_program({"verify", "--model", "counting", "--modes", "reprop,pareprop", "--json", "-"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(lines(run.err), 1) << run.err;
  EXPECT_NE(run.err.find("in mode reprop, pareprop: "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("differs from the forward pass"), std::string::npos) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["ok"], false);
  EXPECT_EQ(result["depth"], 3);
  for (const json& row : result["rows"]) {
    EXPECT_EQ(row["holds"], false);
    EXPECT_TRUE(row["max_rel_error"].is_null());
    EXPECT_NE(std::string(row["error"]).find("branch F"), std::string::npos) << row;
  }
}

TEST(VerifyBrokenNetwork, OutOfMemoryIsAPlainMessage) {
  models::register_model(
      "endless",
      [](const models::Overrides&, const models::WeightOptions&) -> std::shared_ptr<models::Model> {
        throw std::bad_alloc();
      });
  const auto run = run_program({"verify", "--model", "endless"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.err.rfind("pareprop: out of memory; ", 0), 0u) << run.err;
  EXPECT_EQ(run.err.find("bad_alloc"), std::string::npos) << run.err;
}

// The smallest of our networks, until it is told to need more than there is.
class Hungry : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models::register_model(
        "hungry", [](const models::Overrides& change, const models::WeightOptions& weights) {
          if (is_hungry) memory::throw_out_of_memory(std::size_t{1} << 40);
          return models::make_model("vit_digits", change, weights);
        });
  }
  void TearDown() override { is_hungry = false; }

  static inline bool is_hungry = false;
};

TEST_F(Hungry, AdviceNamesOnlyFlagsOfTheCommand) {
  const testing::ScratchFolder folder;
  const std::string run = folder / "run";
  ASSERT_EQ(run_program({"train", "--model", "hungry", "--data", "digits", "--depth", "1",
                         "--batch", "8", "--steps", "1", "--out", run})
                .code,
            0);
  is_hungry = true;
  const std::pair<std::vector<std::string>, const char*> uses[] = {
      {{"plan", "--model", "hungry"}, "a smaller --batch, a smaller --budget or a smaller --model"},
      {{"train", "--model", "hungry", "--data", "digits", "--out", folder / "other"},
       "A smaller batch, or a plan that recomputes more, needs less"},
      {{"verify", "--model", "hungry"}, "a smaller --batch, --modes reprop or a smaller --model"},
      {{"bench", "--model", "hungry", "--out", folder / "rows"}, "a smaller --batch"},
      {{"trace", "--model", "hungry", "--out", folder / "trace"}, "--mode reprop"},
      {{"doctor", "--model", "hungry", "--out", folder / "found"}, "a smaller --model"},
      {{"eval", "--run", run}, "use a smaller --batch\n"},
      {{"predict", "--run", run, "image.png"}, "; stop other programs that use memory\n"}};
  for (const auto& [words, advice] : uses) {
    const auto said = run_program(words);
    EXPECT_NE(said.code, 0) << words[0];
    EXPECT_NE(said.err.find("out of memory: "), std::string::npos) << words[0] << said.err;
    EXPECT_NE(said.err.find(advice), std::string::npos) << words[0] << ": " << said.err;
    testing::expect_flags_of(words[0], said);
  }
}

}  // namespace
}  // namespace pareprop::cli
