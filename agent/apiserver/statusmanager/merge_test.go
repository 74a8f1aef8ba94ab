package statusmanager_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/pod"
)

var (
	later = metav1.NewTime(hour.Add(time.Minute))
	now   = hour.Add(time.Hour)
)

func cond(t v1.PodConditionType, s v1.ConditionStatus, reason string) v1.PodCondition {
	return v1.PodCondition{Type: t, Status: s, Reason: reason, LastTransitionTime: hour}
}

func TestMerge(t *testing.T) {
	disrupted := cond(v1.DisruptionTarget, "True", "TerminationByKubelet")
	for _, row := range []struct {
		name       string
		base, ours func(*v1.PodStatus)
		ended      bool
		want       func(*v1.PodStatus) // of base and ours' changes
	}{
		{name: "nothing"},
		{
			name: "conditions of others stay, and the order",
			base: func(s *v1.PodStatus) {
				s.Conditions = append([]v1.PodCondition{cond("example.com/gate", "True", "")}, s.Conditions...)
			},
			ours: func(s *v1.PodStatus) { s.Conditions = append(s.Conditions, cond("example.com/stale", "True", "")) },
			want: func(s *v1.PodStatus) {
				s.Conditions = append([]v1.PodCondition{cond("example.com/gate", "True", "")}, s.Conditions[:3]...)
			},
		},
		{
			name: "own conditions come and go",
			base: func(s *v1.PodStatus) {
				s.Conditions = append(s.Conditions, cond(v1.PodResizePending, "True", "Deferred"))
			},
			ours: func(s *v1.PodStatus) { s.Conditions = append(s.Conditions, cond(v1.PodInitialized, "True", "")) },
		},
		{
			name: "a condition of the same status keeps its time, and no generation falls",
			base: func(s *v1.PodStatus) {
				s.ObservedGeneration, s.Conditions[1].ObservedGeneration = 7, 7
				s.Conditions[1].LastProbeTime = later
			},
			ours: func(s *v1.PodStatus) {
				s.Conditions[1].LastTransitionTime, s.Conditions[1].Message = later, "m"
			},
			want: func(s *v1.PodStatus) {
				s.ObservedGeneration = 7
				c := &s.Conditions[1]
				c.ObservedGeneration, c.LastProbeTime, c.LastTransitionTime = 7, later, hour
			},
		},
		{
			name: "a count of restarts never falls",
			base: func(s *v1.PodStatus) {
				s.ContainerStatuses = []v1.ContainerStatus{{Name: "gone", RestartCount: 9}, {Name: "b", RestartCount: 5}, {Name: "a", RestartCount: 1}}
				s.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", RestartCount: 2}}
			},
			ours: func(s *v1.PodStatus) {
				s.ContainerStatuses = []v1.ContainerStatus{{Name: "a", RestartCount: 2}, {Name: "b", RestartCount: 4}, {Name: "new"}}
				s.InitContainerStatuses = []v1.ContainerStatus{{Name: "i"}}
			},
			want: func(s *v1.PodStatus) {
				s.ContainerStatuses[1].RestartCount, s.InitContainerStatuses[0].RestartCount = 5, 2
			},
		},
		{
			name: "a condition that turns",
			ours: func(s *v1.PodStatus) {
				s.Conditions[1].Status, s.Conditions[1].LastTransitionTime = "False", later
			},
		},
		{
			name: "the first start, the QoS class and claims are the API's",
			base: func(s *v1.PodStatus) {
				s.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "c"}}
			},
			ours: func(s *v1.PodStatus) { s.StartTime, s.QOSClass = &later, v1.PodQOSGuaranteed },
			want: func(s *v1.PodStatus) {
				s.StartTime, s.QOSClass = &hour, v1.PodQOSBestEffort
				s.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "c"}}
			},
		},
		{
			name: "a phase that is over stays, and such a pod is not ready",
			base: func(s *v1.PodStatus) {
				s.Phase, s.Reason, s.Message = v1.PodFailed, "Lost", "node was gone"
				s.Conditions[1].Status = "False"
			},
			want: func(s *v1.PodStatus) {
				s.Phase, s.Reason, s.Message = v1.PodFailed, "Lost", "node was gone"
				for i, at := range []metav1.Time{1: hour, 2: metav1.NewTime(now)} {
					if c := &s.Conditions[i]; i > 0 {
						c.Status, c.Reason, c.LastTransitionTime = "False", "PodFailed", at
					}
				}
			},
		},
		{
			name: "success does not become failure", base: func(s *v1.PodStatus) { s.Phase = v1.PodSucceeded },
			ours: func(s *v1.PodStatus) { s.Phase, s.Conditions = v1.PodFailed, nil },
			want: func(s *v1.PodStatus) { s.Phase = v1.PodSucceeded },
		},
		{
			name: "what ended is over", ended: true, ours: func(s *v1.PodStatus) { s.Conditions = nil },
			want: func(s *v1.PodStatus) { s.Phase = v1.PodFailed },
		},
		{
			name: "the node's disruption comes with the end", base: func(*v1.PodStatus) {},
			ours: func(s *v1.PodStatus) { s.Phase, s.Conditions = v1.PodFailed, []v1.PodCondition{disrupted} },
		},
		{
			name: "and not before", ours: func(s *v1.PodStatus) { s.Conditions = []v1.PodCondition{disrupted} },
			want: func(s *v1.PodStatus) { s.Conditions = nil },
		},
		{
			name: "nor over one that was withdrawn before",
			base: func(s *v1.PodStatus) { s.Conditions = []v1.PodCondition{cond(v1.DisruptionTarget, "False", "x")} },
			ours: func(s *v1.PodStatus) { s.Conditions = []v1.PodCondition{disrupted} },
			want: func(s *v1.PodStatus) { s.Conditions = []v1.PodCondition{cond(v1.DisruptionTarget, "False", "x")} },
		},
		{
			name: "and not over that of the eviction API",
			base: func(s *v1.PodStatus) {
				s.Conditions = []v1.PodCondition{cond(v1.DisruptionTarget, "True", "EvictionByEvictionAPI")}
			},
			ours: func(s *v1.PodStatus) { s.Phase, s.Conditions = v1.PodFailed, []v1.PodCondition{disrupted} },
			want: func(s *v1.PodStatus) {
				s.Conditions = []v1.PodCondition{cond(v1.DisruptionTarget, "True", "EvictionByEvictionAPI")}
			},
		},
		{
			name: "but over one that was withdrawn",
			base: func(s *v1.PodStatus) { s.Conditions = []v1.PodCondition{cond(v1.DisruptionTarget, "False", "x")} },
			ours: func(s *v1.PodStatus) { s.Phase, s.Conditions = v1.PodFailed, []v1.PodCondition{disrupted} },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			base, ours := running(), running()
			if row.base != nil {
				row.base(base)
			}
			if row.ours != nil {
				row.ours(ours)
			}
			want := ours.DeepCopy()
			if row.want != nil {
				row.want(want)
			}
			keptBase, keptOurs := base.DeepCopy(), ours.DeepCopy()
			got := statusmanager.Merge(base, ours, row.ended, now)
			if diff := cmp.Diff(want, &got); !equality.Semantic.DeepEqual(want, &got) {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]*v1.PodStatus{keptBase, keptOurs}, []*v1.PodStatus{base, ours}); diff != "" {
				t.Errorf("the arguments changed:\n%s", diff)
			}
			again := statusmanager.Merge(&got, ours, row.ended, now.Add(time.Hour))
			if diff := cmp.Diff(ordered(&got), ordered(&again)); !equality.Semantic.DeepEqual(ordered(&got), ordered(&again)) {
				t.Errorf("what was merged changes when it is merged again:\n%s", diff)
			}
		})
	}
}

func TestTransition(t *testing.T) {
	ended := func(code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
	}
	always := v1.ContainerRestartPolicyAlways
	never := v1.ContainerRestartPolicyNever
	for _, row := range []struct {
		name   string
		policy v1.RestartPolicy
		code   int32
		own    *v1.ContainerRestartPolicy
		rules  []v1.ContainerRestartRule
		init   bool
		good   bool
	}{
		{name: "always", policy: v1.RestartPolicyAlways, good: true},
		{name: "never", policy: v1.RestartPolicyNever, code: 1},
		{name: "on failure, failed", policy: v1.RestartPolicyOnFailure, code: 1, good: true},
		{name: "on failure, succeeded", policy: v1.RestartPolicyOnFailure},
		{name: "the container's own always", policy: v1.RestartPolicyNever, own: &always, good: true},
		{name: "the container's own never", policy: v1.RestartPolicyOnFailure, own: &never, code: 1},
		{
			name: "a rule", policy: v1.RestartPolicyNever, own: &never, code: 42, good: true,
			rules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
			}}},
		},
		{
			name: "a rule that restarts all", policy: v1.RestartPolicyNever, own: &never, code: 1, good: true,
			rules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
			}}},
		},
		{name: "an init container", policy: v1.RestartPolicyNever, code: 1, init: true},
		{name: "a sidecar", policy: v1.RestartPolicyNever, own: &always, code: 1, init: true, good: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			containers := []v1.Container{{Name: "a", RestartPolicy: row.own, RestartPolicyRules: row.rules}}
			before, after := []v1.ContainerStatus{{Name: "a", State: ended(row.code)}}, []v1.ContainerStatus{{Name: "a"}}
			spec := &v1.PodSpec{RestartPolicy: row.policy, Containers: containers}
			b, a := &v1.PodStatus{ContainerStatuses: before}, &v1.PodStatus{ContainerStatuses: after}
			if row.init {
				spec = &v1.PodSpec{RestartPolicy: row.policy, InitContainers: containers}
				b, a = &v1.PodStatus{InitContainerStatuses: before}, &v1.PodStatus{InitContainerStatuses: after}
			}
			if err := statusmanager.Transition(spec, b, a); (err == nil) != row.good {
				t.Errorf("back to waiting: %v", err)
			}
			if err := statusmanager.Transition(spec, a, b); err != nil {
				t.Errorf("an end: %v", err)
			}
			if err := statusmanager.Transition(spec, b, b); err != nil {
				t.Errorf("no change: %v", err)
			}
			if err := statusmanager.Transition(spec, b, &v1.PodStatus{}); err != nil {
				t.Errorf("no status: %v", err)
			}
		})
	}
}

func TestMirrorOf(t *testing.T) {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "s-node", Namespace: "n", UID: "static", ResourceVersion: "1", Labels: map[string]string{"l": "1"},
			Annotations: map[string]string{pod.AnnotationHash: "h", pod.AnnotationSource: "file"},
		},
		Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "a"}}},
		Status: *running(),
	}
	kept := p.DeepCopy()
	controller := true
	want := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "s-node", Namespace: "n", Labels: map[string]string{"l": "1"},
			Annotations:     map[string]string{pod.AnnotationHash: "h", pod.AnnotationSource: "file", pod.AnnotationMirror: "h"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node", UID: "nu", Controller: &controller}},
		},
		Spec: v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "a"}}},
	}
	if diff := cmp.Diff(want, statusmanager.MirrorOf(p, "node", types.UID("nu"))); diff != "" {
		t.Errorf("mirror pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(kept, p); diff != "" {
		t.Errorf("the static pod changed:\n%s", diff)
	}
}

func TestReference(t *testing.T) {
	volume := func(v v1.VolumeSource) func(*v1.PodSpec) {
		return func(s *v1.PodSpec) { s.Volumes = []v1.Volume{{Name: "v", VolumeSource: v}} }
	}
	projected := func(p v1.VolumeProjection) func(*v1.PodSpec) {
		return volume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{}}, p}}})
	}
	env := func(s v1.EnvVarSource) func(*v1.PodSpec) {
		return func(p *v1.PodSpec) {
			p.InitContainers = []v1.Container{{Env: []v1.EnvVar{{Name: "x", Value: "1"}, {ValueFrom: &s}}}}
		}
	}
	secret := &v1.LocalObjectReference{Name: "s"}
	for want, specs := range map[string][]func(*v1.PodSpec){
		"": {
			func(*v1.PodSpec) {}, volume(v1.VolumeSource{}), volume(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}),
			volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}), volume(v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}),
			volume(v1.VolumeSource{RBD: &v1.RBDVolumeSource{}}), projected(v1.VolumeProjection{}),
			env(v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{}}),
		},
		"serviceaccounts": {
			func(s *v1.PodSpec) { s.ServiceAccountName = "x" }, func(s *v1.PodSpec) { s.DeprecatedServiceAccount = "x" },
			projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}}),
		},
		"secrets": {
			func(s *v1.PodSpec) { s.ImagePullSecrets = []v1.LocalObjectReference{*secret} },
			env(v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{}}),
			func(s *v1.PodSpec) {
				s.Containers = []v1.Container{{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{}}}}}
			},
			volume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}), projected(v1.VolumeProjection{Secret: &v1.SecretProjection{}}),
			volume(v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{}}),
			volume(v1.VolumeSource{RBD: &v1.RBDVolumeSource{SecretRef: secret}}),
			volume(v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{SecretRef: secret}}),
			volume(v1.VolumeSource{CephFS: &v1.CephFSVolumeSource{SecretRef: secret}}),
			volume(v1.VolumeSource{Cinder: &v1.CinderVolumeSource{SecretRef: secret}}),
			volume(v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{SecretRef: secret}}),
			volume(v1.VolumeSource{ScaleIO: &v1.ScaleIOVolumeSource{SecretRef: secret}}),
			volume(v1.VolumeSource{StorageOS: &v1.StorageOSVolumeSource{SecretRef: secret}}),
		},
		"configmaps": {
			env(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{}}),
			func(s *v1.PodSpec) {
				s.Containers = []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{}}}}}
			},
			volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}), projected(v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{}}),
		},
		"resourceclaims": {func(s *v1.PodSpec) { s.ResourceClaims = []v1.PodResourceClaim{{}} }},
		"csidrivers":     {volume(v1.VolumeSource{CSI: &v1.CSIVolumeSource{}})},
		"endpoints":      {volume(v1.VolumeSource{Glusterfs: &v1.GlusterfsVolumeSource{}})},
		"persistentvolumeclaims": {
			volume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}),
			volume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}),
		},
		"clustertrustbundles": {projected(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}})},
		"podcertificates":     {projected(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}})},
	} {
		for i, change := range specs {
			var s v1.PodSpec
			change(&s)
			if got := statusmanager.Reference(&s); got != want {
				t.Errorf("%s %d: %q", strings.ToUpper(want), i, got)
			}
		}
	}
}
