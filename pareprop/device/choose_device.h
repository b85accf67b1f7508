#pragma once

#include <c10/core/Device.h>

#include <string>

namespace pareprop {

// The device that `spec` names: "auto" (the accelerator of this machine, or the CPU where there is
// none), "cpu", or a device of torch, as "cuda" and "cuda:1". Without a number it is the one of
// `local_rank`, so that processes of one machine have one each; ranks beyond the last device begin
// with the first again.
//
// Throws std::invalid_argument, in one line, when torch does not know the name, was built without
// that device, or finds none or not so many of them.
c10::Device choose_device(const std::string& spec, int local_rank = 0);

// How many of so many processes of this machine have that device when each takes what `spec` names:
// at least 1.
int processes_on(c10::Device device, const std::string& spec, int processes);

// What choose_device() names, by name only: a device that this machine need not have, to plan for.
c10::Device named_device(const std::string& spec);
bool is_present(c10::Device device);

// "cpu", "cuda:0, NVIDIA A100-SXM4-40GB": for people and for files of measured times. The name of
// the processor is not part of it.
std::string device_text(c10::Device device);
// The kind of accelerator, whichever of several it is: "NVIDIA A100-SXM4-40GB", or torch's word
// where nothing else is known. Empty: the CPU.
std::string accelerator_name(c10::Device device);

}  // namespace pareprop
