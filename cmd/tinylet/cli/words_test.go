package cli

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	boot := 10 * time.Minute
	epoch := time.Unix(30, 0)
	tests := []struct {
		name      string
		then      time.Time
		up        time.Duration
		want      string
		wantOfRun string // of what cannot be older than the boot
	}{
		{"never", time.Time{}, boot, "-", "-"},
		{"now", now, boot, "0s", "0s"},
		{"rounding of two clocks", now.Add(time.Second), boot, "0s", "0s"},
		{"minutes", now.Add(-5 * time.Minute), boot, "5m", "5m"},
		{"before the boot", now.Add(-72 * time.Hour), boot, "3d", "10m"},
		{"clock was set back", now.Add(time.Hour), boot, "?", "?"},
		{"clock was not set yet", epoch, boot, "10m", "10m"},
		{"clock was not set yet, uptime unknown", epoch, 0, "?", "?"},
		{"uptime unknown", now.Add(-72 * time.Hour), 0, "3d", "3d"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := age(tt.then, now, tt.up); got != tt.want {
				t.Errorf("age = %q, want %q", got, tt.want)
			}
			if got := ageThisBoot(tt.then, now, tt.up); got != tt.wantOfRun {
				t.Errorf("ageThisBoot = %q, want %q", got, tt.wantOfRun)
			}
		})
	}
	t.Run("the clock itself is not set", func(t *testing.T) {
		if got := age(time.Unix(10, 0), time.Unix(70, 0), boot); got != "60s" {
			t.Errorf("age = %q", got)
		}
	})
}

func TestMemory(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "-", 1: "1Ki", 1 << 10: "1Ki", 1<<20 - 1: "1024Ki", 1 << 20: "1.0Mi", 5<<20 + 300<<10: "5.3Mi",
		10 << 20: "10Mi", 1 << 30: "1024Mi", 10 << 30: "10Gi", 1 << 50: "1048576Gi",
	} {
		if got := memory(bytes); got != want {
			t.Errorf("memory(%d) = %q, want %q", bytes, got, want)
		}
	}
}

func TestPick(t *testing.T) {
	names := []podName{{"default", "web"}, {"default", "web-2"}, {"kube-system", "dns"}, {"kube-system", "web"}, {"default", "db-1"}, {"default", "db-1"}}
	tests := []struct {
		arg  string
		want int
		err  string
	}{
		{arg: "default/web", want: 0},
		{arg: "kube-system/web", want: 3},
		{arg: "web-2", want: 1},
		{arg: "web-", want: 1},
		{arg: "d", err: "default/db-1, default/web, default/web-2, kube-system/dns"},
		{arg: "dns", want: 2},
		{arg: "kube-system/d", want: 2},
		{arg: "db", want: 4},
		{arg: "web", err: "default/web, kube-system/web"},
		{arg: "eb", err: `no pod is named "eb"`},
		{arg: "", err: "no pod"},
	}
	for _, tt := range tests {
		t.Run(tt.arg, func(t *testing.T) {
			got, err := pick(names, tt.arg)
			if tt.err == "" {
				if err != nil || got != tt.want {
					t.Errorf("pick = %d, %v", got, err)
				}
				return
			}
			var e *ExitError
			if !errors.As(err, &e) || e.Code != codeNotFound || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestUptimeGrows(t *testing.T) {
	a := uptime()
	if b := uptime(); a <= 0 || b < a {
		t.Errorf("uptime %v, then %v", a, b)
	}
}
