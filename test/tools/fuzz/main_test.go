package main

import "testing"

func TestEndedByDeadline(t *testing.T) {
	for _, tt := range []struct {
		name, output string
		want         bool
	}{
		{"the coordinator's deadline", "fuzz: elapsed: 10s, execs: 197657 (15941/sec)\n--- FAIL: FuzzLease (10.06s)\n    context deadline exceeded\nFAIL\nexit status 1\n", true},
		{"a finding", "--- FAIL: FuzzIO (1.67s)\n    --- FAIL: FuzzIO (0.00s)\n        parse_test.go:132: \"wios=0\" was read\n    \n    Failing input written to testdata/fuzz/FuzzIO/e2\nFAIL\n", false},
		{"a finding with this text", "--- FAIL: FuzzGet (1.67s)\n    --- FAIL: FuzzGet (0.00s)\n        get_test.go:1: \n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzGet/e2\nFAIL\n", false},
		{"no failure", "PASS\n", false},
	} {
		if got := endedByDeadline([]byte(tt.output)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
