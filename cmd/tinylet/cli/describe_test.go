package cli

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tinylet/tinylet/agent/server/local"
)

// A container whose record the runtime has lost has a last state without a time.
func TestDescribeLastStateWithoutATime(t *testing.T) {
	pods := samplePods()
	for i := range pods {
		for j := range pods[i].Pod.Status.ContainerStatuses {
			pods[i].Pod.Status.ContainerStatuses[j].LastTerminationState.Terminated = &v1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", ExitCode: 137}
		}
	}
	out, _, err := newNode(t, pods, nil).run(t, "describe", "crash")
	if err != nil || strings.Contains(out, "0001") || !strings.Contains(out, "ContainerStatusUnknown (exit 137)\n") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// fullPod has all fields that describe prints.
func fullPod() *v1.Pod {
	always, grpc := v1.ContainerRestartPolicyAlways, "live"
	propagation, recursive := v1.MountPropagationHostToContainer, v1.RecursiveReadOnlyEnabled
	kind, signal, class := v1.HostPathDirectoryOrCreate, v1.SIGUSR1, "small"
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "full-board", UID: "f011"},
		Spec: v1.PodSpec{
			NodeName: "board", Priority: new(int32(2000001000)), PriorityClassName: "system-node-critical", RuntimeClassName: &class,
			HostNetwork: true, HostIPC: true, HostUsers: new(false), RestartPolicy: v1.RestartPolicyOnFailure, ServiceAccountName: "app",
			TerminationGracePeriodSeconds: new(int64(30)), ActiveDeadlineSeconds: new(int64(3600)),
			ReadinessGates: []v1.PodReadinessGate{{ConditionType: "example.com/fed"}, {ConditionType: "example.com/warm"}},
			InitContainers: []v1.Container{
				{Name: "once", Image: "a"},
				{
					Name: "beside", Image: "b", RestartPolicy: &always,
					RestartPolicyRules: []v1.ContainerRestartRule{{
						Action:    v1.ContainerRestartRuleActionRestart,
						ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{3, 4}},
					}},
				},
			},
			Containers: []v1.Container{{
				Name: "main", Image: "c", WorkingDir: "/srv",
				StartupProbe: &v1.Probe{
					ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"cat", "/ready"}}},
					PeriodSeconds: 2, FailureThreshold: 30, TerminationGracePeriodSeconds: new(int64(5)),
				},
				LivenessProbe: &v1.Probe{
					ProbeHandler:        v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Host: "localhost", Port: intstr.FromInt32(8443), Path: "/healthz"}},
					InitialDelaySeconds: 7, TimeoutSeconds: 3,
				},
				ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 9000, Service: &grpc}}},
				Lifecycle: &v1.Lifecycle{
					PostStart:  &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("web"), Path: "warm"}},
					PreStop:    &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 4}},
					StopSignal: &signal,
				},
				EnvFrom: []v1.EnvFromSource{
					{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}},
					{Prefix: "DB_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "database"}, Optional: new(true)}},
				},
				Env: []v1.EnvVar{
					{Name: "PLAIN", Value: "a\nb $(HOST)"},
					{Name: "EMPTY"},
					{Name: "HOST", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
					{Name: "CPUS", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu", ContainerName: "beside", Divisor: resource.MustParse("1m")}}},
					{Name: "LEVEL", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}, Key: "level"}}},
					{Name: "PASSWORD", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "database"}, Key: "password", Optional: new(true)}}},
					{Name: "WRITTEN", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "temp", Path: "out.env", Key: "K"}}},
				},
				VolumeMounts: []v1.VolumeMount{
					{Name: "temp", MountPath: "/tmp", SubPath: "of/main"},
					{Name: "host", MountPath: "/host", ReadOnly: true, RecursiveReadOnly: &recursive, MountPropagation: &propagation},
				},
			}},
			EphemeralContainers: []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "d", Command: []string{"sh"}},
				TargetContainerName:      "main",
			}},
			Volumes: fullVolumes(&kind),
		},
		Status: v1.PodStatus{
			Phase: v1.PodPending,
			Conditions: []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: "not all"},
				{Type: "example.com/fed", Status: v1.ConditionTrue},
			},
		},
	}
}

func fullVolumes(kind *v1.HostPathType) []v1.Volume {
	limit := resource.MustParse("10Mi")
	settings := v1.LocalObjectReference{Name: "settings"}
	files := []v1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "memory", ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.memory", ContainerName: "main"}},
	}
	sources := []v1.VolumeSource{
		{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}},
		{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}},
		{HostPath: &v1.HostPathVolumeSource{Path: "/srv", Type: kind}},
		{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: settings, Items: []v1.KeyToPath{{Key: "a", Path: "a"}, {Key: "b", Path: "c/d"}}}},
		{Secret: &v1.SecretVolumeSource{SecretName: "database", Optional: new(true)}},
		{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: files}},
		{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true}},
		{Image: &v1.ImageVolumeSource{Reference: "registry/site:1"}},
		{CSI: &v1.CSIVolumeSource{Driver: "csi.example.com"}},
		{NFS: &v1.NFSVolumeSource{Server: "nas"}},
		{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: new(int64(600)), Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: settings}},
			{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "database"}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: files[:1]}},
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "ca.pem"}},
			{},
		}}},
		{},
	}
	names := []string{"temp", "huge", "host", "settings", "secret", "self", "claim", "image", "csi", "nfs", "mixed", "broken"}
	out := make([]v1.Volume, len(sources))
	for i := range out {
		out[i] = v1.Volume{Name: names[i], VolumeSource: sources[i]}
	}
	return out
}

func TestDescribeEverything(t *testing.T) {
	n := newNode(t, []local.Pod{{Pod: fullPod(), WorkerState: "syncing"}}, nil)
	out, errs, err := n.run(t, "describe", "full")
	if err != nil || errs != "" {
		t.Fatalf("error %v, stderr %q", err, errs)
	}
	golden(t, "describe-full.txt", out)
}

// TestDescribeIsClean has control characters in the fields of a pod.
func TestDescribeIsClean(t *testing.T) {
	p := fullPod()
	const bad = "\x1b[2J\r\n"
	c := &p.Spec.Containers[0]
	c.Env[0].Value, c.Env[0].Name, c.WorkingDir = bad, bad, bad
	c.StartupProbe.Exec.Command = []string{bad}
	c.VolumeMounts[0].MountPath, p.Spec.Volumes[2].HostPath.Path, p.Spec.Volumes[0].Name = bad, bad, bad
	n := newNode(t, []local.Pod{{Pod: p}}, nil)
	out, _, err := n.run(t, "describe", "full")
	if err != nil || strings.ContainsAny(out, "\x1b\r") {
		t.Errorf("%v: %q", err, out)
	}
}
