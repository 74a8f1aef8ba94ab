package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// fiveVolumes is a pod with five config volumes, and what they are made of.
func fiveVolumes() (*v1.Pod, Input) {
	o := some()
	o.token, o.expires = "x", time.Now().Add(time.Hour)
	for i := range 10 {
		o.configMaps["c"].Data[fmt.Sprintf("file-%d.conf", i)] = strings.Repeat("key = value\n", 100)
	}
	named := func(name string, v v1.Volume) v1.Volume { v.Name = name; return v }
	field := v1.DownwardAPIVolumeFile{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}
	p := podWith("u",
		named("c1", ofConfigMap(v1.ConfigMapVolumeSource{})),
		named("c2", ofConfigMap(v1.ConfigMapVolumeSource{DefaultMode: new(int32(0o400))})),
		named("s", ofSecret(v1.SecretVolumeSource{})),
		named("d", ofDownward(field)),
		named("p", ofProjected(
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{field}}},
		)),
	)
	return p, Input{Objects: o, Field: func(path string) (string, error) { return path, nil }}
}

// cpu is the process's user and system time.
func cpu(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkSetup sets up a pod with five config volumes; the budget is 20 ms
// of CPU.
func BenchmarkSetup(b *testing.B) {
	p, in := fiveVolumes()
	v := New(b.TempDir())
	var spent time.Duration
	for b.Loop() {
		start := cpu(b)
		if _, err := v.Setup(context.Background(), p, in); err != nil {
			b.Fatal(err)
		}
		spent += cpu(b) - start
		b.StopTimer()
		if err := v.Teardown(context.Background(), p.UID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "ms-CPU/op")
}

// BenchmarkSetupUnchanged sets it up again.
func BenchmarkSetupUnchanged(b *testing.B) {
	p, in := fiveVolumes()
	v := New(b.TempDir())
	if _, err := v.Setup(context.Background(), p, in); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Setup(context.Background(), p, in); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if err := v.Teardown(context.Background(), p.UID); err != nil {
		b.Fatal(err)
	}
}
