#include "pareprop/train/train_config.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "pareprop/models/registry.h"
#include "pareprop/train/presets.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::train {
namespace {

using io::testing::message_of;

std::string refusal(const std::string& json) {
  TrainConfig config;
  return message_of<std::invalid_argument>([&] { apply_json(config, json, "c.json"); });
}

TEST(TrainConfig, ComesBackFromJson) {
  TrainConfig config;
  config.model = "swin_cifar";
  config.depth = {2, 3};
  config.width = 96;
  config.drop_path = 0.25;
  config.learning_rate = 3.3e-4;
  config.seed = 18446744073709551615ULL;
  config.exact = true;
  TrainConfig again;
  again.resume = "auto";  // null in the file: not given
  apply_json(again, to_json(config), "c.json");
  EXPECT_EQ(to_json(again), to_json(config));
  EXPECT_EQ(again.depth, config.depth);
  EXPECT_EQ(again.seed, config.seed);
  EXPECT_EQ(again.resume, "");
}

TEST(TrainConfig, EveryFieldIsReadAsItIsWritten) {
  std::set<std::string> keys;
  const TrainConfig config;
  for (const ConfigField& field : fields(config)) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    EXPECT_FALSE(field.help.empty());
    TrainConfig copy = config;
    set_field(copy, field.key, field.value);
    EXPECT_EQ(to_json(copy), to_json(config)) << field.key;
  }
}

TEST(TrainConfig, SaysWhatIsWrong) {
  EXPECT_EQ(refusal(R"({"learnin_rate": 1})"),
            "c.json: line 1, column 2: unknown key 'learnin_rate'; the nearest is 'learning_rate'");
  EXPECT_EQ(refusal(R"({"batch": "many"})"),
            "c.json: line 1, column 2: batch: expected a whole number, got 'many'");
  EXPECT_EQ(refusal(R"({"batch": 1.5})"),
            "c.json: line 1, column 2: batch: expected a whole number, got '1.5'");
  EXPECT_EQ(refusal(R"({"exact": 1})"),
            "c.json: line 1, column 2: exact: expected true or false, got '1'");
  EXPECT_EQ(refusal(R"({"depth": [2, "x"]})"),
            "c.json: line 1, column 2: depth: expected a number or a list of numbers");
  EXPECT_EQ(refusal(R"({"depth": [2, 1.5]})"),
            "c.json: line 1, column 2: depth: expected a whole number, got '1.5'");
  EXPECT_EQ(refusal("[1]"), "c.json: expected a JSON object of keys and values");
  EXPECT_EQ(refusal(R"({"batch": 4)"),
            "c.json: line 1, column 12: expected JSON: unexpected end of input; expected '}'");
  EXPECT_EQ(refusal(R"({"batch": {"a": 1}})"),
            "c.json: line 1, column 2: batch: expected one value, not a list or an object");
  EXPECT_EQ(refusal(R"({"batch": [1]})"),
            "c.json: line 1, column 2: batch: expected one value, not a list or an object");
  EXPECT_EQ(refusal(R"({"model": []})"),
            "c.json: line 1, column 2: model: expected one value, not a list or an object");
  EXPECT_EQ(refusal("{\n  \"model\": \"exact\",\n  \"exact\": 1}"),
            "c.json: line 3, column 3: exact: expected true or false, got '1'");
  EXPECT_EQ(refusal("{\n  \"clip\": 1e999}"),
            "c.json: line 2, column 11: a number is too large: '1e999'");
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(refusal(R"({"depth": )" + deep + "}"),
            "c.json: line 1, column 110: lists and objects are nested more than 100 deep");
}

TEST(TrainConfig, NothingChangesWhenOneKeyIsWrong) {
  TrainConfig config;
  EXPECT_THROW(apply_json(config, R"({"batch": 7, "nothing": 1})", ""), std::invalid_argument);
  EXPECT_EQ(to_json(config), to_json({}));
}

// Whatever is in a file, it is read or refused.
TEST(TrainConfig, SurvivesDamagedFiles) {
  std::mt19937 random(20);
  const std::string good = to_json({});
  const std::string bits = "{}[]\",:-+.eE0123456789nulltruefalse\\u\xff\x80 \n";
  int read = 0;
  constexpr int kFiles = 20000;
  for (int i = 0; i < kFiles; ++i) {
    std::string text = good;
    for (auto changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = bits[random() % bits.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, 1 + random() % 3, bits[random() % bits.size()]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
    }
    TrainConfig config;
    try {
      apply_json(config, text, "c.json");
      ++read;
      check(config);
    } catch (const std::invalid_argument&) {
    }
  }
  EXPECT_GT(read, kFiles / 100);
  EXPECT_LT(read, kFiles);
}

TEST(TrainConfig, AbsurdSizesAreRefusedWithTheLimit) {
  const std::pair<const char*, const char*> absurd[] = {{"depth", "100000"},
                                                        {"depth", "2,2,100000,2"},
                                                        {"width", "1000000000"},
                                                        {"image_size", "100000"},
                                                        {"seq_len", "1000000000"},
                                                        {"vocabulary", "1000000000000"},
                                                        {"batch", "1000000000000000"},
                                                        {"accumulate", "9000000000000000000"},
                                                        {"epochs", "1e300"},
                                                        {"steps", "9000000000000000000"},
                                                        {"log_every", "9000000000000000000"},
                                                        {"keep", "2000000000"},
                                                        {"save_every", "9000000000000000000"},
                                                        {"eval_every", "9000000000000000000"},
                                                        {"early_stop", "9000000000000000000"},
                                                        {"trace", "9000000000000000000"},
                                                        {"time_limit", "1e300"},
                                                        {"timeout", "1e300"}};
  for (const auto& [key, value] : absurd) {
    TrainConfig config;
    set_field(config, key, value);
    const std::string message = message_of<std::invalid_argument>([&] { check(config); });
    EXPECT_EQ(message.rfind(std::string(key) + ": expected ", 0), 0u) << message;
    EXPECT_TRUE(message.find(" to ") != std::string::npos ||
                message.find("at most ") != std::string::npos)
        << message;
  }
  for (const char* key : {"batch", "depth", "keep"}) {
    TrainConfig config;
    const std::string message = message_of<std::invalid_argument>(
        [&] { set_field(config, key, "99999999999999999999999999"); });
    EXPECT_NE(message.find("expected a number of at most "), std::string::npos) << message;
  }
  check(TrainConfig{});
}

TEST(TrainConfig, ChecksRanges) {
  const std::pair<const char*, const char*> wrong[] = {
      {"batch", "0"},      {"accumulate", "0"}, {"epochs", "0"},   {"warmup", "1.5"},
      {"ema", "1"},        {"keep", "0"},       {"mode", "fast"},  {"precision", "fp8"},
      {"decay", "slowly"}, {"augment", "much"}, {"workers", "-1"}, {"workers", "100000"},
      {"log_every", "0"},  {"drop_path", "1"},  {"timeout", "0"},  {"streams", "wide"},
      {"save_every", "-1"}};
  for (const auto& [key, value] : wrong) {
    TrainConfig config;
    set_field(config, key, value);
    EXPECT_THROW(check(config), std::invalid_argument) << key;
  }
  EXPECT_NO_THROW(check(TrainConfig{}));
}

TEST(TrainConfig, CheckSaysWhatTheWordsMean) {
  TrainConfig config;
  EXPECT_EQ(check(config).mode, Mode::automatic);
  EXPECT_FALSE(check(config).budget.has_value());
  EXPECT_EQ(check(config).numerics, StackOptions{});
  config.mode = "reprop";
  config.decay = "linear";
  config.budget = "3MiB";
  config.precision = "bf16";
  const TrainChoices found = check(config);
  EXPECT_EQ(found.mode, Mode::reprop);
  EXPECT_EQ(found.decay, Decay::linear);
  EXPECT_EQ(found.budget, 3 << 20);
  EXPECT_EQ(found.numerics.precision, Precision::bf16);
  EXPECT_EQ(found.numerics.arithmetic, Arithmetic::exact);
  config.streams = "float";
  EXPECT_EQ(check(config).numerics.arithmetic, Arithmetic::floating);
  config.exact = true;
  EXPECT_EQ(check(config).numerics.arithmetic, Arithmetic::exact);
}

TEST(TrainConfig, WordsThatThereAreNotNameTheirField) {
  const std::pair<const char*, const char*> wrong[] = {
      {"mode", "fast"}, {"precision", "fp8"}, {"decay", "slowly"}, {"budget", "22"}};
  for (const auto& [key, value] : wrong) {
    TrainConfig config;
    set_field(config, key, value);
    const std::string message = message_of<FieldError>([&] { check(config); });
    EXPECT_EQ(message.find(std::string(key) + ": "), 0u) << message;
  }
}

TEST(TrainConfig, EveryPresetIsAConfiguration) {
  for (const Preset& preset : presets()) {
    TrainConfig config;
    apply_preset(config, preset.name);
    EXPECT_NO_THROW(check(config)) << preset.name;
    EXPECT_NE(to_json(config), to_json({})) << preset.name;
    if (!preset.name.starts_with("fashion")) continue;
    models::Overrides of_data = overrides_of(config);
    of_data.image_size = 28;
    of_data.channels = 1;
    for (const bool plain : {false, true}) {
      of_data.plain = plain;
      EXPECT_NO_THROW(models::make_model(config.model, of_data, {.device = at::kMeta}))
          << preset.name;
    }
  }
  TrainConfig config;
  EXPECT_THROW(apply_preset(config, "best"), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::train
