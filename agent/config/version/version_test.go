package version

import (
	"regexp"
	"testing"
	"time"

	semver "k8s.io/apimachinery/pkg/util/version"
)

func TestLine(t *testing.T) {
	for _, stamped := range []string{"0.1.0", "v0.1.0", "0.2.0-rc.1", "0.1.0-3-gabcdef0+dirty", "0.0.0-dev"} {
		t.Run(stamped, func(t *testing.T) {
			stamp(t, stamped, "")
			m := regexp.MustCompile(`^Kubernetes v(\d+\.\d+\.\d+[-\w.+]*)$`).FindStringSubmatch(Line())
			if m == nil {
				t.Fatalf("kubeadm cannot read %q", Line())
			}
			v, err := semver.ParseSemantic(m[1])
			if err != nil {
				t.Fatalf("parse %q: %v", m[1], err)
			}
			if v.Major() != 1 || v.Minor() != 36 || v.Patch() != 0 || v.PreRelease() != "" {
				t.Errorf("%q is %v, want 1.36.0 with build metadata only", Line(), v)
			}
		})
	}
}

func TestBuilt(t *testing.T) {
	for _, tc := range []struct {
		name, stamped string
		want          time.Time
	}{
		{"nothing", "", time.Time{}},
		{"garbage", "yesterday", time.Time{}},
		{"negative", "-1", time.Time{}},
		{"after 2038", "4102444800", time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stamp(t, "0.1.0", tc.stamped)
			if got := BuildTime(); !got.Equal(tc.want) {
				t.Errorf("Built() = %v, want %v", got, tc.want)
			}
		})
	}
}

func stamp(t *testing.T, r, unix string) {
	oldRelease, oldUnix := release, buildUnix
	t.Cleanup(func() { release, buildUnix = oldRelease, oldUnix })
	release, buildUnix = r, unix
}
