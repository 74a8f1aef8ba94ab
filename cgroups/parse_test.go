package cgroups

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestUsageAndWorkingSet(t *testing.T) {
	k := func(n uint64) Number { return Number{n, true} }
	for _, c := range []struct {
		name              string
		in                MemoryStats
		usage, workingSet Number
	}{
		{name: "nothing known"},
		{name: "a group", in: MemoryStats{Current: k(100), InactiveFile: k(30), Anon: k(1), File: k(2)}, usage: k(100), workingSet: k(70)},
		{name: "not under zero", in: MemoryStats{Current: k(10), InactiveFile: k(11)}, usage: k(10), workingSet: k(0)},
		{name: "the root", in: MemoryStats{Anon: k(100), File: k(50), InactiveFile: k(20)}, usage: k(150), workingSet: k(130)},
		{name: "no statistics", in: MemoryStats{Current: k(10)}, usage: k(10)},
		{name: "half of the root", in: MemoryStats{Anon: k(10), InactiveFile: k(1)}},
		{name: "no overflow", in: MemoryStats{Anon: k(math.MaxUint64), File: k(1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.in.Usage(); got != c.usage {
				t.Errorf("usage %+v, want %+v", got, c.usage)
			}
			if got := c.in.WorkingSet(); got != c.workingSet {
				t.Errorf("working set %+v, want %+v", got, c.workingSet)
			}
		})
	}
}

func TestParseIO(t *testing.T) {
	for _, c := range []struct {
		name, in string
		reads    uint64
		ok       bool
	}{
		{"no device", "", 0, true},
		{"one that did nothing", "8:0 \n", 0, true},
		{"the line's end is left out", "8:0 8:16 rbytes=1 wbytes=0 rios=2 wios=0 dbytes=0 dios=0\n7:0 rios=3\n", 5, true},
		{"cost of a device", "8:0 rios=4 cost.vrate=100.00 cost.usage=7\n", 4, true},
		{"no number", "8:0 rios=\n", 0, false},
		{"below zero", "8:0 rios=-1\n", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got IOStats
			ok := parseIO([]byte(c.in), &got)
			if ok != c.ok || got.Reads.Value != c.reads || got.Reads.Known != c.ok {
				t.Errorf("got %+v, %v", got, ok)
			}
		})
	}
}

// FuzzKeyed holds the parser against strconv.
func FuzzKeyed(f *testing.F) {
	f.Add("usage_usec 1\nuser_usec 2\n")
	f.Add("usage_usec 18446744073709551616")
	f.Add("usage_usec")
	f.Add("nice_usec x\nusage_usec 3\nusage_usec 4\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		var got CPUStats
		ok := parseCPU([]byte(in), &got)
		wantOK := true
		var want Number
		for _, line := range strings.Split(in, "\n") {
			key, value, _ := strings.Cut(line, " ")
			if !slices.Contains([]string{"usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec"}, key) {
				continue
			}
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				wantOK = false
				break
			}
			if key == "usage_usec" {
				want = Number{n, true}
			}
		}
		if ok != wantOK || got.Usage != want {
			t.Errorf("%q: got %+v %v, want %+v %v", in, got.Usage, ok, want, wantOK)
		}
	})
}

// FuzzSingle holds the parsers of one number against each other and strconv.
func FuzzSingle(f *testing.F) {
	for _, in := range []string{"", "max", "max\n", "1\n", "18446744073709551615\n", "1\n\n", "+1", "0x1"} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var single, limit Number
		singleOK, limitOK := parseSingle([]byte(in), &single), parseLimit([]byte(in), &limit)
		n, err := strconv.ParseUint(strings.TrimSuffix(in, "\n"), 10, 64)
		if singleOK != (err == nil) || singleOK != single.Known || singleOK && single.Value != n {
			t.Errorf("%q as a number: %+v, %v", in, single, singleOK)
		}
		if strings.TrimSuffix(in, "\n") == "max" {
			single, singleOK = Number{NoLimit, true}, true
		}
		if limitOK != singleOK || limit != single {
			t.Errorf("%q as a limit: %+v, %v", in, limit, limitOK)
		}
	})
}

// FuzzIO holds the sum against one without bounds.
func FuzzIO(f *testing.F) {
	f.Add("8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n")
	f.Add("8:0 8:1 wios=1\nwios=2 wios=")
	f.Add("8:0 wios=18446744073709551615 wios=1")
	f.Add("wios=0\r")
	f.Fuzz(func(t *testing.T, in string) {
		var got IOStats
		ok := parseIO([]byte(in), &got)
		if ok != got.Writes.Known {
			t.Fatalf("%q: %v, but %+v", in, ok, got)
		}
		if !ok {
			return
		}
		sum := new(big.Int)
		for word := range strings.FieldsSeq(in) {
			if value, found := strings.CutPrefix(word, "wios="); found {
				n, good := new(big.Int).SetString(value, 10)
				if !good {
					t.Fatalf("%q was read", in)
				}
				sum.Add(sum, n)
			}
		}
		if sum.Cmp(new(big.Int).SetUint64(got.Writes.Value)) != 0 {
			t.Errorf("%q: %d writes, want %s", in, got.Writes.Value, sum)
		}
	})
}

// FuzzPressure holds the parser against strconv.
func FuzzPressure(f *testing.F) {
	f.Add("some avg10=1.50 avg60=0.75 avg300=99.99 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=78\n")
	f.Add("some avg10=.5")
	f.Add("some avg10=1. total=2")
	f.Add("full total=18446744073709551616")
	f.Add("some avg10=0\t")
	f.Fuzz(func(t *testing.T, in string) {
		var got Pressure
		ok := parsePressure([]byte(in), &got)
		if !ok {
			return
		}
		var some Stall
		for _, line := range strings.Split(in, "\n") {
			kind, values, _ := strings.Cut(line, " ")
			if kind != "some" {
				continue
			}
			some = Stall{Known: true}
			for word := range strings.FieldsSeq(values) {
				key, value, _ := strings.Cut(word, "=")
				var err error
				switch key {
				case "avg10":
					some.Avg10, err = strconv.ParseFloat(value, 64)
				case "total":
					some.Total, err = strconv.ParseUint(value, 10, 64)
				}
				if err != nil {
					t.Fatalf("%q was read: %v", in, err)
				}
			}
		}
		if got.Some.Known != some.Known || got.Some.Avg10 != some.Avg10 || got.Some.Total != some.Total {
			t.Errorf("%q: got %+v, want %+v", in, got.Some, some)
		}
		if s := got.Some; s.Avg10 < 0 || s.Avg60 < 0 || s.Avg300 < 0 || math.IsInf(s.Avg10, 0) {
			t.Errorf("%q: %+v", in, s)
		}
	})
}
