package shutdown

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

func TestPeriods(t *testing.T) {
	two := func(total, critical time.Duration) kubelet.KubeletConfiguration {
		return kubelet.KubeletConfiguration{
			ShutdownGracePeriod:             metav1.Duration{Duration: total},
			ShutdownGracePeriodCriticalPods: metav1.Duration{Duration: critical},
		}
	}
	many := func(gates map[string]bool, of ...int64) kubelet.KubeletConfiguration {
		kc := kubelet.KubeletConfiguration{FeatureGates: gates}
		for i := 0; i < len(of); i += 2 {
			kc.ShutdownGracePeriodByPodPriority = append(kc.ShutdownGracePeriodByPodPriority,
				kubelet.ShutdownGracePeriodByPodPriority{Priority: int32(of[i]), ShutdownGracePeriodSeconds: of[i+1]})
		}
		return kc
	}
	withGate := func(kc kubelet.KubeletConfiguration, name string, on bool) kubelet.KubeletConfiguration {
		kc.FeatureGates = map[string]bool{name: on}
		return kc
	}
	both := two(30*time.Second, 10*time.Second)
	both.ShutdownGracePeriodByPodPriority = many(nil, 7, 7).ShutdownGracePeriodByPodPriority
	twoOf30 := []Period{{0, 20 * time.Second}, {2_000_000_000, 10 * time.Second}}

	for _, tc := range []struct {
		name string
		kc   kubelet.KubeletConfiguration
		want []Period
	}{
		{"nothing set", two(0, 0), nil},
		{"only critical", two(0, 10*time.Second), nil},
		{"two", two(30*time.Second, 10*time.Second), twoOf30},
		{"no time for critical", two(30*time.Second, 0), []Period{{0, 30 * time.Second}, {2_000_000_000, 0}}},
		{"all time for critical", two(30*time.Second, 30*time.Second), []Period{{0, 0}, {2_000_000_000, 30 * time.Second}}},
		{"critical above the whole", two(10*time.Second, 11*time.Second), nil},
		{"critical negative", two(10*time.Second, -time.Second), nil},
		{"parts of seconds are cut", two(30500*time.Millisecond, 10900*time.Millisecond), []Period{{0, 19 * time.Second}, {2_000_000_000, 10 * time.Second}}},
		{"by priority, sorted", many(nil, 1000, 10, -5, 20, 0, 30), []Period{{-5, 20 * time.Second}, {0, 30 * time.Second}, {1000, 10 * time.Second}}},
		{"by priority goes first", both, []Period{{7, 7 * time.Second}}},
		{"negative is none, and huge is bounded", many(nil, 1, -3, 2, math.MaxInt64), []Period{{1, 0}, {2, 9223372036 * time.Second}}},
		{"gate off", withGate(two(30*time.Second, 10*time.Second), "GracefulNodeShutdown", false), nil},
		{"gate on, betas off", withGate(two(30*time.Second, 10*time.Second), "AllBeta", false), nil},
		{"other gate off", withGate(two(30*time.Second, 10*time.Second), "NodeSwap", false), twoOf30},
		{"by priority without its gate", withGate(both, "GracefulNodeShutdownBasedOnPodPriority", false), twoOf30},
		{"by priority with its gate alone off", many(map[string]bool{"GracefulNodeShutdownBasedOnPodPriority": false}, 7, 7), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Periods(&tc.kc)); diff != "" {
				t.Errorf("periods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPeriodsLeaveTheConfigurationAlone(t *testing.T) {
	kc := kubelet.KubeletConfiguration{ShutdownGracePeriodByPodPriority: []kubelet.ShutdownGracePeriodByPodPriority{{Priority: 9}, {Priority: 1}}}
	Periods(&kc)
	if kc.ShutdownGracePeriodByPodPriority[0].Priority != 9 {
		t.Error("the configuration was sorted")
	}
}

func TestTotal(t *testing.T) {
	for _, tc := range []struct {
		periods []Period
		want    time.Duration
	}{
		{nil, 0},
		{[]Period{{0, 20 * time.Second}, {1, 10 * time.Second}}, 30 * time.Second},
		{[]Period{{0, seconds(math.MaxInt64)}, {1, seconds(math.MaxInt64)}, {2, time.Second}}, math.MaxInt64},
	} {
		if got := Total(tc.periods); got != tc.want {
			t.Errorf("total of %v is %v, want %v", tc.periods, got, tc.want)
		}
	}
}

func TestIndexOf(t *testing.T) {
	three := []Period{{10, time.Second}, {100, time.Second}, {1000, time.Second}}
	for _, tc := range []struct {
		name       string
		periods    []Period
		priorities []int32
		want       [][]int32
	}{
		{"no pods", three, nil, [][]int32{nil, nil, nil}},
		{"below the lowest", three, []int32{-7, 0, 9}, [][]int32{{-7, 0, 9}, nil, nil}},
		{"at the bounds", three, []int32{10, 100, 1000}, [][]int32{{10}, {100}, {1000}}},
		{"between the bounds is the lower", three, []int32{11, 99, 101, 999}, [][]int32{{11, 99}, {101, 999}, nil}},
		{"above the highest", three, []int32{1001, math.MaxInt32}, [][]int32{nil, nil, {1001, math.MaxInt32}}},
		{"one period takes all", []Period{{50, time.Second}}, []int32{math.MinInt32, 50, math.MaxInt32}, [][]int32{{math.MinInt32, 50, math.MaxInt32}}},
		{"one priority twice", []Period{{5, 1}, {5, 2}, {9, 3}}, []int32{4, 5, 6, 9}, [][]int32{{4, 5}, {6}, {9}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := make([][]int32, len(tc.periods))
			for _, p := range tc.priorities {
				i := indexOf(tc.periods, newPod(fmt.Sprint(p), p, 30))
				got[i] = append(got[i], p)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("priorities by period (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodWithoutPriorityCountsAsZero(t *testing.T) {
	p := newPod("a", 0, 30)
	p.Spec.Priority = nil
	if i := indexOf([]Period{{-5, 1}, {0, 1}, {5, 1}}, p); i != 1 {
		t.Errorf("period %d", i)
	}
}

func TestGrace(t *testing.T) {
	for _, tc := range []struct {
		own        int64 // -1 is none
		left, want time.Duration
	}{
		{30, 20 * time.Second, 20 * time.Second},
		{20, 20 * time.Second, 20 * time.Second},
		{5, 20 * time.Second, 5 * time.Second},
		{-1, 20 * time.Second, 20 * time.Second},
		{0, 20 * time.Second, time.Second},
		{-2, 20 * time.Second, time.Second},
		{30, 0, time.Second},
		{math.MaxInt64, 20 * time.Second, 20 * time.Second},
	} {
		p := newPod("a", 0, tc.own)
		if tc.own == -1 {
			p.Spec.TerminationGracePeriodSeconds = nil
		}
		if got := Grace(p, tc.left); got != tc.want {
			t.Errorf("own %d s of %v: got %v, want %v", tc.own, tc.left, got, tc.want)
		}
	}
}

func newPod(name string, priority int32, grace int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(name), Name: name, Namespace: "default"},
		Spec:       v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace},
	}
}
