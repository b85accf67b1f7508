#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/simulated_device/simulated_device.h"

namespace pareprop::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two streams of one device and a tensor that the first has made.
class RacesTest : public ::testing::Test {
 protected:
  static c10::Stream pool_stream() {
    return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
        .getStreamFromGlobalPool(SimulatedDevice::device());
  }
  void TearDown() override {
    t_.reset();
    SimulatedDevice::finish();
    SimulatedDevice::empty_cache();
  }

  static void on(const c10::Stream& stream, const std::function<void()>& work) {
    const c10::StreamGuard guard(stream);
    work();
  }
  static void wait(const c10::Stream& stream, const c10::Stream& until) {
    c10::Event event(c10::DeviceType::PrivateUse1);
    event.record(until);
    event.block(stream);
  }
  static std::string race_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Race& race) {
      return race.what();
    }
    return "";
  }
  static at::Tensor make() {
    return at::zeros({3, 5}, at::TensorOptions(SimulatedDevice::device()));
  }

  const c10::Stream a_ = pool_stream(), b_ = pool_stream();
  at::Tensor t_;
};

TEST_F(RacesTest, AReadMustComeAfterTheWrite) {
  on(a_, [&] { t_ = make(); });
  on(b_, [&] {
    EXPECT_THAT(race_of([&] { t_.mul(2.0); }),
                AllOf(HasSubstr("aten::mul.out (argument 'self': Float [3, 5]) on stream " +
                                std::to_string(b_.id()) + " of simulated:0 reads memory"),
                      HasSubstr("aten::zero_ (argument 'self': Float [3, 5]) on stream " +
                                std::to_string(a_.id()) + " of simulated:0 wrote"),
                      HasSubstr("no event orders")));
  });
  wait(b_, a_);
  on(b_, [&] { EXPECT_EQ(race_of([&] { t_.mul(2.0); }), ""); });
}

TEST_F(RacesTest, AWriteMustComeAfterReadsAndWrites) {
  on(a_, [&] { t_ = make(); });
  wait(b_, a_);
  on(a_, [&] { t_.add(1.0); });
  on(b_, [&] { t_.sub(1.0); });  // reads do not race with reads
  on(b_, [&] {
    EXPECT_THAT(race_of([&] { t_.add_(1.0); }),
                AllOf(HasSubstr("writes memory that aten::add.out"), HasSubstr(" read,")));
  });
  wait(a_, b_);
  on(a_, [&] {
    EXPECT_EQ(race_of([&] { t_.add_(1.0); }), "") << "the write that was refused did not happen";
  });
  on(b_, [&] { EXPECT_THAT(race_of([&] { t_.zero_(); }), HasSubstr("wrote")); });
}

TEST_F(RacesTest, MemoryIsReusedAtOnceByItsStreamOnly) {
  const void* memory = nullptr;
  on(a_, [&] {
    t_ = make();
    memory = t_.const_data_ptr();
    t_.reset();
    t_ = make();
    EXPECT_EQ(t_.const_data_ptr(), memory);
  });
  on(b_, [&] {
    t_.reset();  // it goes back to the stream that it is from
    t_ = make();
    EXPECT_NE(t_.const_data_ptr(), memory);
  });
  on(a_, [&] {
    t_ = make();
    EXPECT_EQ(t_.const_data_ptr(), memory);
  });
}

TEST_F(RacesTest, ReuseMustComeAfterAllUsesOfTheFormerTensor) {
  for (const bool ordered : {false, true}) {
    on(a_, [&] { t_ = make(); });
    wait(b_, a_);
    at::Tensor read;
    on(b_, [&] { read = t_.mul(2.0); });
    t_.reset();
    if (ordered) wait(a_, b_);
    on(a_, [&] {
      const std::string race = race_of([&] { t_ = make(); });
      if (ordered) {
        EXPECT_EQ(race, "");
      } else {
        EXPECT_THAT(race, AllOf(HasSubstr("aten::zero_"), HasSubstr("aten::mul.out"),
                                HasSubstr("for a tensor that is freed since")));
      }
    });
    SimulatedDevice::finish();
  }
}

TEST_F(RacesTest, ATensorOfAnotherSizeMayGetTheMemoryToo) {
  on(a_, [&] { t_ = make(); });
  wait(b_, a_);
  on(b_, [&] { t_.mul(2.0); });
  const auto options = t_.options();
  t_.reset();
  const auto make_large = [&] { return race_of([&] { at::zeros({1000}, options); }); };
  on(b_, [&] { EXPECT_EQ(make_large(), ""); });  // of its own pool
  on(a_, [&] {
    EXPECT_THAT(make_large(), AllOf(HasSubstr("may get memory"), HasSubstr("aten::mul.out"),
                                    HasSubstr("for a tensor of that stream that is freed since")));
    EXPECT_EQ(make_large(), "") << "it is told once";
  });
  SimulatedDevice::finish();
  on(a_, [&] { t_ = make(); });
  wait(b_, a_);
  on(b_, [&] { t_.mul(2.0); });
  t_.reset();
  wait(a_, b_);
  on(a_, [&] { EXPECT_EQ(make_large(), ""); });
}

TEST_F(RacesTest, RecordedMemoryWaitsForTheHost) {
  const void* memory = nullptr;
  on(a_, [&] { t_ = make(); });
  memory = t_.const_data_ptr();
  wait(b_, a_);
  on(b_, [&] { t_.mul(2.0); });
  t_.record_stream(b_);
  t_.reset();
  on(a_, [&] {
    t_ = make();
    EXPECT_NE(t_.const_data_ptr(), memory) << "the other stream may still be at it";
  });
  on(b_, [&] { make(); });
  b_.synchronize();
  on(a_, [&] {
    const at::Tensor again = make();
    EXPECT_EQ(again.const_data_ptr(), memory);
  });
}

TEST_F(RacesTest, PartsOfOneBlockAreApart) {
  on(a_, [&] { t_ = make(); });
  wait(b_, a_);
  on(a_, [&] { t_[0].add_(1.0); });
  on(b_, [&] {
    EXPECT_EQ(race_of([&] { t_[1].add_(1.0); }), "");
    EXPECT_NE(race_of([&] { t_.sum(); }), "");
  });
}

TEST_F(RacesTest, TheHostOrdersWhatItWaitedFor) {
  const std::vector<std::function<void()>> waits{
      [&] { a_.synchronize(); }, [&] { EXPECT_TRUE(a_.query()); },
      [&] {
        c10::Event event(c10::DeviceType::PrivateUse1);
        event.record(a_);
        event.synchronize();
      },
      [&] { on(a_, [&] { at::ones({1}, t_.options()).item<float>(); }); },
      [&] { c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).synchronizeDevice(0); }};
  for (const auto& host_waits : waits) {
    on(a_, [&] { t_ = make(); });
    on(b_, [&] { EXPECT_NE(race_of([&] { t_.mul(2.0); }), ""); });
    host_waits();
    on(b_, [&] { EXPECT_EQ(race_of([&] { t_.mul(2.0); }), ""); });
    SimulatedDevice::finish();
  }
}

TEST_F(RacesTest, EventsCarryWhatTheirStreamHadSeen) {
  const c10::Stream c = pool_stream();
  on(a_, [&] { t_ = make(); });
  wait(b_, a_);
  wait(c, b_);
  on(c, [&] { EXPECT_EQ(race_of([&] { t_.mul(2.0); }), ""); });
  wait(a_, c);

  c10::Event event(c10::DeviceType::PrivateUse1);
  event.block(c);  // not recorded: it does nothing
  event.record(a_);
  on(a_, [&] { t_.add_(1.0); });
  event.block(c);  // of what was there when it was recorded
  EXPECT_FALSE(SimulatedDevice::is_ordered(a_, c));
  on(c, [&] { EXPECT_NE(race_of([&] { t_.mul(2.0); }), ""); });
  event.record(a_);
  event.block(c);
  EXPECT_TRUE(SimulatedDevice::is_ordered(a_, c));
  on(c, [&] { EXPECT_EQ(race_of([&] { t_.mul(2.0); }), ""); });
}

TEST_F(RacesTest, AMutationLeavesOutOneCall) {
  on(a_, [&] { t_ = make(); });
  const c10::Stream c = pool_stream();
  {
    const Mutation mutation(Mutation::Kind::event_block, 1);
    wait(b_, a_);
    EXPECT_FALSE(mutation.happened());
    wait(c, a_);
    EXPECT_TRUE(mutation.happened());
  }
  on(b_, [&] { EXPECT_EQ(race_of([&] { t_.mul(2.0); }), ""); });
  on(c, [&] { EXPECT_NE(race_of([&] { t_.mul(2.0); }), ""); });
  {
    const Mutation mutation(Mutation::Kind::recorded_memory, 0);
    t_.record_stream(b_);
    EXPECT_TRUE(mutation.happened());
  }
  const RaceCollector collector;
  t_.reset();
  on(a_, [&] { t_ = make(); });
  EXPECT_EQ(collector.races().size(), 1u) << "b still reads what is zeroed again";
}

}  // namespace
}  // namespace pareprop::testing
