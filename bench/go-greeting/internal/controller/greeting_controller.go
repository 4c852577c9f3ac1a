// Package controller keeps Greetings and their ConfigMaps in step.
package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	examplev1 "example.dev/greeting/api/v1"
)

const fieldOwner = "greeting-controller"

// GreetingReconciler reconciles a Greeting.
type GreetingReconciler struct {
	client.Client
	Scheme *runtime.Scheme

	// Metadata has the ConfigMaps' content neither watched nor kept: only that one changed, and whose it is.
	Metadata bool
}

// Reconcile brings one Greeting's ConfigMap and status to what its spec says.
func (r *GreetingReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var greeting examplev1.Greeting
	if err := r.Get(ctx, req.NamespacedName, &greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// The ConfigMap goes with its owner: there is nothing to do for one that is being deleted.
	if !greeting.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}

	ensure := r.ensureConfigMap
	if r.Metadata {
		ensure = r.applyConfigMap
	}
	if err := ensure(ctx, &greeting); err != nil {
		return ctrl.Result{}, fmt.Errorf("ensuring the ConfigMap: %w", err)
	}

	before := greeting.Status.DeepCopy()
	greeting.Status.ObservedGeneration = greeting.Generation
	meta.SetStatusCondition(&greeting.Status.Conditions, metav1.Condition{
		Type:               examplev1.ConditionReady,
		Status:             metav1.ConditionTrue,
		Reason:             examplev1.ReasonGreeted,
		Message:            "The ConfigMap says it",
		ObservedGeneration: greeting.Generation,
	})
	if equality.Semantic.DeepEqual(before, &greeting.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Status().Update(ctx, &greeting); err != nil {
		return ctrl.Result{}, fmt.Errorf("updating the status: %w", err)
	}
	return ctrl.Result{}, nil
}

func text(greeting *examplev1.Greeting) map[string]string {
	return map[string]string{"text": fmt.Sprintf("Hello, %s!", greeting.Spec.Name)}
}

// ensureConfigMap compares with the cache and writes only what differs.
func (r *GreetingReconciler) ensureConfigMap(ctx context.Context, greeting *examplev1.Greeting) error {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: greeting.Name, Namespace: greeting.Namespace}}
	operation, err := controllerutil.CreateOrUpdate(ctx, r.Client, configMap, func() error {
		configMap.Data = text(greeting)
		return controllerutil.SetControllerReference(greeting, configMap, r.Scheme)
	})
	if err != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("ConfigMap is as it should be", "operation", operation)
	return nil
}

// applyConfigMap has nothing to compare with, so it applies; where nothing differs, the API server writes nothing.
func (r *GreetingReconciler) applyConfigMap(ctx context.Context, greeting *examplev1.Greeting) error {
	owner := metav1.NewControllerRef(greeting, examplev1.GroupVersion.WithKind("Greeting"))
	configMap := corev1ac.ConfigMap(greeting.Name, greeting.Namespace).
		WithOwnerReferences(metav1ac.OwnerReference().
			WithAPIVersion(owner.APIVersion).
			WithKind(owner.Kind).
			WithName(owner.Name).
			WithUID(owner.UID).
			WithController(true).
			WithBlockOwnerDeletion(true)).
		WithData(text(greeting))
	return r.Apply(ctx, configMap, client.FieldOwner(fieldOwner), client.ForceOwnership)
}

// SetupWithManager has the manager run it, with so many Greetings worked on at the same time.
func (r *GreetingReconciler) SetupWithManager(mgr ctrl.Manager, workers int) error {
	var owned []builder.OwnsOption
	if r.Metadata {
		owned = append(owned, builder.OnlyMetadata)
	}
	return ctrl.NewControllerManagedBy(mgr).
		// A write of its own status need not wake it.
		For(&examplev1.Greeting{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}, owned...).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}
