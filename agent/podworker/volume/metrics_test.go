package volume

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
)

func TestPlugin(t *testing.T) {
	for want, sources := range map[string][]v1.VolumeSource{
		"kubernetes.io/empty-dir":    {{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		"kubernetes.io/host-path":    {{HostPath: &v1.HostPathVolumeSource{}}},
		"kubernetes.io/configmap":    {{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		"kubernetes.io/secret":       {{Secret: &v1.SecretVolumeSource{}}},
		"kubernetes.io/downward-api": {{DownwardAPI: &v1.DownwardAPIVolumeSource{}}},
		"kubernetes.io/projected":    {{Projected: &v1.ProjectedVolumeSource{}}},
		"kubernetes.io/image":        {{Image: &v1.ImageVolumeSource{}}},
		"N/A":                        {{}, {NFS: &v1.NFSVolumeSource{}}, {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
	} {
		for _, source := range sources {
			if got := Plugin(&source); got != want {
				t.Errorf("%+v is of %s, want %s", source, got, want)
			}
		}
	}
}

func TestSetupIsTold(t *testing.T) {
	v := New(t.TempDir())
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns"}, Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "share", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}},
	}}}
	for range 2 {
		if _, err := v.Setup(t.Context(), p, Input{}); err == nil {
			t.Fatal("NFS is supported")
		}
	}
	p, o := claimed("claimed", "")
	o.volumes["pv"].Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}}
	if _, err := v.Setup(t.Context(), p, Input{Objects: o}); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	out := metrics.NewStream(&text)
	v.WriteMetrics(out)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if problems := metricstest.Problems([]byte(text.String())); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, text.String())
	}
	for _, want := range []string{
		`status="success",volume_plugin="kubernetes.io/empty-dir"} 2`,
		`status="fail-unknown",volume_plugin="N/A"} 2`,
		`status="success",volume_plugin="kubernetes.io/host-path"} 1`,
	} {
		if want = `storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",` + want + "\n"; !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if !strings.Contains(text.String(), `le="600"} 2`) {
		t.Errorf("bounds in\n%s", text.String())
	}
}
