package objects

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRefers(t *testing.T) {
	named := v1.LocalObjectReference{Name: "x"}
	volume := func(s v1.VolumeSource) v1.PodSpec { return v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: s}}} }
	env := func(s v1.EnvVarSource) v1.PodSpec {
		return v1.PodSpec{InitContainers: []v1.Container{{Env: []v1.EnvVar{{Name: "plain"}, {ValueFrom: &s}}}}}
	}
	projected := func(s v1.VolumeProjection) v1.PodSpec {
		return volume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{}, s}}})
	}
	for _, row := range []struct {
		name string
		spec v1.PodSpec
		kind string // the one kind that is referred to as x
	}{
		{"nothing", v1.PodSpec{}, ""},
		{"volume of a ConfigMap", volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: named}}), KindConfigMap},
		{"volume of a Secret", volume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "x"}}), KindSecret},
		{"projected ConfigMap", projected(v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: named}}), KindConfigMap},
		{"projected Secret", projected(v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: named}}), KindSecret},
		{"variable of a ConfigMap", env(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named}}), KindConfigMap},
		{"variable of a Secret", env(v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named}}), KindSecret},
		{"all of a ConfigMap", v1.PodSpec{Containers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named}}}}}}, KindConfigMap},
		{"all of a Secret", v1.PodSpec{Containers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: named}}}}}}, KindSecret},
		{"pull secret", v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{named}}, KindSecret},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: row.spec}
			for _, kind := range []string{KindConfigMap, KindSecret, KindClaim, KindVolume} {
				if got := PodReferences(p, Key{kind, "ns", "x"}); got != (kind == row.kind) {
					t.Errorf("%s x: %t", kind, got)
				}
				EachReference(p, func(k Key) {
					if k != (Key{row.kind, "ns", "x"}) {
						t.Errorf("refers to %s", k)
					}
				})
				if PodReferences(p, Key{kind, "ns", "y"}) || kind != KindVolume && PodReferences(p, Key{kind, "other", "x"}) {
					t.Errorf("%s of another name or namespace", kind)
				}
			}
		})
	}
	class := "x"
	classy := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{RuntimeClassName: &class}}
	if !PodReferences(classy, Key{KindClass, "", "x"}) || PodReferences(classy, Key{KindClass, "", "y"}) || PodReferences(classy, Key{KindSecret, "ns", "x"}) {
		t.Error("a pod refers to its runtime class alone")
	}
	claim := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: volume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}})}
	if !PodReferences(claim, Key{KindClaim, "ns", "x"}) || PodReferences(claim, Key{KindClaim, "ns", "y"}) || !PodReferences(claim, Key{KindVolume, "", "any"}) {
		t.Error("a claim refers to itself and to any volume")
	}
}

func TestEachReference(t *testing.T) {
	named := v1.LocalObjectReference{Name: "x"}
	class := "c"
	p := &v1.Pod{Spec: v1.PodSpec{
		RuntimeClassName: &class,
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}},
			{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}, // of no name
			{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: named}},
				{Secret: &v1.SecretProjection{LocalObjectReference: named}},
			}}}},
		},
		Containers: []v1.Container{{
			EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named}}, {SecretRef: &v1.SecretEnvSource{LocalObjectReference: named}}},
			Env: []v1.EnvVar{
				{ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named}}},
				{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named}}},
			},
		}},
		ImagePullSecrets: []v1.LocalObjectReference{named, {Name: "pull"}},
	}}
	n := 0
	EachReference(p, func(k Key) {
		if n++; k.Name == "" {
			t.Error("a reference of no name")
		}
	})
	if n != 10 {
		t.Errorf("%d references, want 10", n)
	}
}
