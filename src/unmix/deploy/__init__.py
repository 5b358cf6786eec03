"""A fitted model where people use it: ONNX, SQL, MLflow. Changes no number of the model."""
