#include "pareprop/device/choose_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace pareprop {
namespace {

std::string complaint(const std::string& spec) {
  try {
    choose_device(spec);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ChooseDevice, TheCpuIsAlwaysThere) {
  EXPECT_EQ(choose_device("cpu"), c10::Device(c10::kCPU));
  EXPECT_EQ(device_text(c10::kCPU), "cpu");
}

TEST(ChooseDevice, UnknownNamesAreRefused) {
  for (const char* spec : {"gpu", "", "cuda:x", "cuda:-1", "cpu:", "meta", "cuda:0:1", "auto:1"}) {
    EXPECT_NE(complaint(spec).find("expected auto, cpu, cuda or cuda:N"), std::string::npos)
        << spec << ": " << complaint(spec);
  }
}

TEST(ChooseDevice, WhatIsNotThereIsSaidInOneLine) {
  const bool built = c10::impl::hasDeviceGuardImpl(c10::kCUDA);
  std::string said = complaint("cuda");
  if (said.empty()) {  // this machine has one
    said = complaint("cuda:100");
    EXPECT_NE(said.find("expected cuda:0"), std::string::npos) << said;
  } else {
    EXPECT_NE(said.find(built ? "no cuda device was found" : "built without cuda"),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("use cpu"), std::string::npos) << said;
    EXPECT_EQ(choose_device("auto"), c10::Device(c10::kCPU));
  }
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

}  // namespace
}  // namespace pareprop
