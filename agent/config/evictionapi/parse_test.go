package evictionapi

import (
	"math"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

type texts = map[string]string

func quantity(amount int64, text string) Value { return Value{Amount: amount, Text: text} }

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   kubelet.KubeletConfiguration
		want []Threshold
		errs []string
	}{
		{name: "nothing"},
		{
			name: "the order is that of signals, hard before soft",
			in: kubelet.KubeletConfiguration{
				EvictionHard:            texts{"pid.available": "10", "nodefs.available": "10%", "memory.available": "100Mi"},
				EvictionSoft:            texts{"memory.available": "0.3Gi"},
				EvictionSoftGracePeriod: texts{"memory.available": "1m30s", "imagefs.available": "1s"},
			},
			want: []Threshold{
				{Signal: MemoryAvailable, Value: quantity(100*mi, "100Mi")},
				{Signal: MemoryAvailable, Value: quantity(322122548, "322122547200m"), Grace: 90 * time.Second},
				{Signal: NodeFsAvailable, Value: Value{Share: .1}},
				{Signal: PIDAvailable, Value: quantity(10, "10")},
			},
		},
		{
			name: "0% and 100% are off, however they are written",
			in: kubelet.KubeletConfiguration{
				EvictionHard: texts{"memory.available": "0%", "nodefs.available": "100%", "imagefs.available": "100.0%", "pid.available": "-0%"},
				EvictionSoft: texts{"memory.available": "100%"},
			},
		},
		{
			name: "a minimum reclaim is of the hard and the soft one",
			in: kubelet.KubeletConfiguration{
				EvictionHard: texts{"nodefs.inodesFree": "5%"}, EvictionSoft: texts{"nodefs.inodesFree": "1k"}, EvictionSoftGracePeriod: texts{"nodefs.inodesFree": "0s"},
				EvictionMinimumReclaim: texts{"nodefs.inodesFree": "2.5%", "memory.available": "0"},
			},
			want: []Threshold{
				{Signal: NodeFsInodesFree, Value: Value{Share: .05}, MinReclaim: Value{Share: .025}},
				{Signal: NodeFsInodesFree, Value: quantity(1000, "1k"), MinReclaim: Value{Share: .025}},
			},
		},
		{
			name: "what is allocatable to pods follows the hard threshold of memory",
			in: kubelet.KubeletConfiguration{
				EvictionHard: texts{"memory.available": "5%", "allocatableMemory.available": "1Mi"}, EvictionSoft: texts{"memory.available": "10%"},
				EvictionSoftGracePeriod: texts{"memory.available": "1s"}, EvictionMinimumReclaim: texts{"memory.available": "1%"}, EnforceNodeAllocatable: []string{"pods"},
			},
			want: []Threshold{
				{Signal: MemoryAvailable, Value: Value{Share: .05}, MinReclaim: Value{Share: .01}},
				{Signal: MemoryAvailable, Value: Value{Share: .1}, Grace: time.Second, MinReclaim: Value{Share: .01}},
				{Signal: AllocatableMemoryAvailable, Value: Value{Share: .05}, MinReclaim: Value{Share: .01}},
				{Signal: AllocatableMemoryAvailable, Value: quantity(mi, "1Mi")},
			},
		},
		{name: "but not where it is off", in: kubelet.KubeletConfiguration{EvictionHard: texts{"memory.available": "0%"}, EnforceNodeAllocatable: []string{"pods"}}},
		{name: "more than there can be is all", in: kubelet.KubeletConfiguration{EvictionHard: texts{"memory.available": "9999E"}}, want: []Threshold{{Signal: MemoryAvailable, Value: quantity(math.MaxInt64, "9999E")}}},
		{
			name: "nonsense",
			in: kubelet.KubeletConfiguration{
				EvictionHard: texts{"memory.available": "-1Mi", "nodefs.available": "101%", "imagefs.available": "NaN%", "pid.available": "much", "disk": "1", "imagefs.inodesFree": "0", "containerfs.available": "5%%", "nodefs.inodesFree": "-1%"},
				EvictionSoft: texts{"nodefs.available": "15%", "nodefs.inodesFree": "15%"}, EvictionSoftGracePeriod: texts{"nodefs.inodesFree": "-1s", "cpu": "1s"},
				EvictionMinimumReclaim: texts{"nodefs.available": "0%", "memory.available": "-1", "pid.available": "200%"},
			},
			errs: []string{
				`evictionHard[containerfs.available] "5%%": not a percentage from 0 to 100`,
				`evictionHard: unknown eviction signal "disk"`,
				`evictionHard[imagefs.available] "NaN%": not a percentage from 0 to 100`,
				`evictionHard[imagefs.inodesFree] "0": not above 0; 0% turns a threshold off`,
				`evictionHard[memory.available] "-1Mi": negative`,
				`evictionHard[nodefs.available] "101%": not a percentage from 0 to 100`,
				`evictionHard[nodefs.inodesFree] "-1%": not a percentage from 0 to 100`,
				`evictionHard[pid.available] "much": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
				`evictionSoftGracePeriod: unknown eviction signal "cpu"`,
				`evictionSoftGracePeriod[nodefs.inodesFree] "-1s": not a duration such as 1m30s`,
				`evictionMinimumReclaim[memory.available] "-1": negative`,
				`evictionMinimumReclaim[nodefs.available] "0%": not a percentage above 0`,
				`evictionMinimumReclaim[pid.available] "200%": not a percentage from 0 to 100`,
				`evictionSoft[nodefs.available]: no evictionSoftGracePeriod is set`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse(&tc.in)
			if d := gocmp.Diff(tc.want, got); d != "" {
				t.Errorf("thresholds (-want +got):\n%s", d)
			}
			var errs []string
			if err != nil {
				errs = strings.Split(err.Error(), "\n")
			}
			if d := gocmp.Diff(tc.errs, errs); d != "" {
				t.Errorf("errors (-want +got):\n%s", d)
			}
		})
	}
}

// FuzzParse checks that parsed thresholds are valid, and evaluates them for the
// largest capacity.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"100Mi", "10%", "0%", "1e3", "-5", "9999E", "0.1m", "NaN%", "1e-50%", "+5%", "0x1p-3%"} {
		f.Add("memory.available", seed, "30s", seed)
	}
	f.Add("allocatableMemory.available", "1", "1h", "2%")
	f.Fuzz(func(t *testing.T, name, value, grace, reclaim string) {
		one := func(text string) texts { return texts{name: text} }
		list, err := Parse(&kubelet.KubeletConfiguration{EvictionHard: one(value), EvictionSoft: one(value), EvictionSoftGracePeriod: one(grace), EvictionMinimumReclaim: one(reclaim), EnforceNodeAllocatable: []string{"pods"}})
		if err != nil && list != nil {
			t.Fatalf("thresholds %v beside %v", list, err)
		}
		if len(list) > 3 {
			t.Fatalf("thresholds %v of one signal", list)
		}
		for _, th := range list {
			for _, v := range []Value{th.Value, th.MinReclaim} {
				if v.Amount < 0 || !(v.Share >= 0 && v.Share <= 1) || v.ForCapacity(math.MaxInt64) < 0 || v.ForCapacity(0) != v.Amount {
					t.Errorf("%q became %+v", value, v)
				}
			}
			if th.Value.ForCapacity(math.MaxInt64) == 0 || th.Grace < 0 || !th.Signal.Known() {
				t.Errorf("%q became %+v", value, th)
			}
			if v := th.Value; v.Text != "" {
				if again, err := parseAmount(v.Text); err != nil || again.Amount != v.Amount {
					t.Errorf("%+v is read again as %+v, %v", v, again, err)
				}
			}
			if !th.Met(Observation{Capacity: math.MaxInt64, Available: -1, Known: true}, true) {
				t.Errorf("%+v is not met by less than nothing", th)
			}
		}
	})
}
